"""Encode the corpus and pack whole documents into rows of 1024 tokens.

    python pack_rows.py --corpus corpus.jsonl --tokenizer tokenizer/tokenizer.json --out rows/

Every document ends with `<|endoftext|>` and every row begins with a document, so the state that a model starts
from at position 0 is one it was trained on. Rows are filled best fit first; what is left over is padded with
`PAD`, which counts in no loss. Writes train.npy and held_out.npy, uint16 [rows, 1024], and corpus.json with counts.
"""
import argparse
import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

ROW, OPEN_ROWS = 1024, 64
END_OF_TEXT, PAD = 0, 65535


def pack(documents: list[list[int]]) -> np.ndarray:
    open_rows, full = [], []                                # each row: a list of token ids
    for ids in documents:
        fitting = [row for row in open_rows if len(row) + len(ids) <= ROW]
        if fitting:
            max(fitting, key=len).extend(ids)
        else:
            open_rows.append(list(ids))
        if len(open_rows) > OPEN_ROWS:
            fullest = max(range(len(open_rows)), key=lambda i: len(open_rows[i]))
            full.append(open_rows.pop(fullest))
    rows = np.full((len(full) + len(open_rows), ROW), PAD, np.uint16)
    for out, row in zip(rows, full + open_rows):
        out[:len(row)] = row
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    tok = Tokenizer.from_file(args.tokenizer)
    with open(args.corpus) as corpus:
        docs = [json.loads(line) for line in corpus]
    args.out.mkdir(parents=True, exist_ok=True)
    counts = dict(documents=len(docs))
    for name, wanted in ("train", False), ("held_out", True):
        texts = [doc["text"] for doc in docs if doc["held_out"] == wanted]
        ids = [e.ids + [END_OF_TEXT] for e in tok.encode_batch_fast(texts, add_special_tokens=False)]
        rows = pack([d for d in ids if len(d) <= ROW])
        np.save(args.out / f"{name}.npy", rows)
        tokens = int((rows != PAD).sum())
        counts[name + "_tokens"] = tokens / 1e6
        print(f"{name}: {len(ids)} documents, {tokens / 1e6:.2f} M tokens, {len(rows)} rows, "
              f"{tokens / rows.size:.1%} filled", flush=True)
    (args.out / "corpus.json").write_text(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
