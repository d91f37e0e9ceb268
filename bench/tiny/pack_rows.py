"""Render the corpus with other names, encode it and pack whole documents into rows of 1024 tokens.

    python pack_rows.py --corpus corpus.jsonl --tokenizer tokenizer/tokenizer.json --out rows/ --copies 3

Each conversation becomes `--copies` documents, every one with its characters renamed differently (renaming.py says
why); a held-out one becomes one document, renamed too. A plain story is its text alone, everything else a chat in
the template that the checkpoints ship.
Every document ends with `<|endoftext|>` and every row begins with a document, so the state that a model starts
from at position 0 is one it was trained on. Rows are filled best fit first; what is left over is padded with
`PAD`, which counts in no loss. Writes train.npy, best.npy (what of it is marked best, packed by itself) and
held_out.npy, uint16 [rows, 1024], and corpus.json with counts.
"""
import argparse
import json
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer

from renaming import rename

ROW, OPEN_ROWS = 1024, 64
END_OF_TEXT, PAD = 0, 65535
SEED, CHUNK = 1, 20_000


def chat(messages: list[dict], system: str) -> str:
    if system:
        messages = [dict(role="system", content=system), *messages]
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def render(copies: int, numbered: tuple[int, str]) -> tuple[list[str], list[str]]:
    """The sets that line n of the corpus belongs to, and its documents."""
    n, line = numbered
    doc, texts = json.loads(line), []
    for copy in range(1 if doc["held_out"] else copies):
        messages = rename(doc["messages"], Random(f"{SEED} {n} {copy}"))
        texts.append(messages[1]["content"] if doc["plain"] else chat(messages, doc["system"]))
    return ["held_out"] if doc["held_out"] else ["train", "best"][:1 + doc["best"]], texts


def encode(tok: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    documents = []
    for start in range(0, len(texts), CHUNK):
        for encoding in tok.encode_batch_fast(texts[start:start + CHUNK], add_special_tokens=False):
            documents.append(np.array(encoding.ids + [END_OF_TEXT], np.uint16))
    return [ids for ids in documents if len(ids) <= ROW]


def pack(documents: list[np.ndarray]) -> np.ndarray:
    open_rows, full = [], []                                # each row: [length, documents]
    for ids in documents:
        fitting = [row for row in open_rows if row[0] + len(ids) <= ROW]
        if fitting:
            row = max(fitting, key=lambda row: row[0])
            row[0] += len(ids)
            row[1].append(ids)
        else:
            open_rows.append([len(ids), [ids]])
        if len(open_rows) > OPEN_ROWS:
            fullest = max(range(len(open_rows)), key=lambda i: open_rows[i][0])
            full.append(open_rows.pop(fullest))
    rows = np.full((len(full) + len(open_rows), ROW), PAD, np.uint16)
    for out, (length, parts) in zip(rows, full + open_rows):
        out[:length] = np.concatenate(parts)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--copies", type=int, default=3)
    args = parser.parse_args()
    texts = dict(train=[], best=[], held_out=[])
    with open(args.corpus) as corpus, Pool() as pool:
        for n, (names, documents) in enumerate(pool.imap(partial(render, args.copies), enumerate(corpus), 256)):
            for name in names:
                texts[name] += documents
    tok = Tokenizer.from_file(args.tokenizer)
    args.out.mkdir(parents=True, exist_ok=True)
    counts = dict(conversations_kept=n + 1, copies=args.copies)
    for name in texts:
        Random(SEED).shuffle(texts[name])
        documents = encode(tok, texts[name])
        rows = pack(documents)
        np.save(args.out / f"{name}.npy", rows)
        tokens = int((rows != PAD).sum())
        counts[name + "_documents"], counts[name + "_tokens"] = len(documents), tokens / 1e6
        print(f"{name}: {len(documents)} documents, {tokens / 1e6:.2f} M tokens, {len(rows)} rows, "
              f"{tokens / rows.size:.1%} filled", flush=True)
    (args.out / "corpus.json").write_text(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
