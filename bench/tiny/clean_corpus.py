"""Keep the good answers of a raw corpus and render them as documents.

    python clean_corpus.py --raw raw.jsonl --out corpus.jsonl

A conversation is kept up to its first bad answer. Bad: cut off, too short, repetitive, about being a language
model, marked up, or seen before; for a story also hard words, a crowd of names, or without the one it was to be
about. A kept story becomes a plain document in half of the cases; everything else is
a chat in the template that the checkpoints ship. Requests decide the split: one in eighty is held out, with every answer to it.
Each line out: {"text", "kind", "held_out"}.
"""
import argparse
import json
import re
import zlib
from collections import Counter
from multiprocessing import Pool

BOILERPLATE = re.compile(
    r"language model|\bAI\b|SmolLM|Hugging ?Face|assistant|chatbot|as requested|I'm sorry, but|I cannot (?:provide|assist)|"
    r"here(?:'s| is) (?:a|an|the|your) (?:short |little |brief |simple |bedtime )*(?:story|scene|conversation|talk|dialogue|name)|"
    r"(?:simple|short|little|two|three) (?:sentence|answer|scene)|kind teacher|friendly helper|storyteller|"
    r"end of the (?:story|scene)|the (?:story|scene) (?:is|was|begins|ends|ended|went|continues)|"
    r"\b(?:title|scene|moral|user|narrator)\s*:|https?:|\*\*|##|```|\[|\]|<|>|_{2,}|\{|\}", re.IGNORECASE)
LISTS = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s", re.MULTILINE)
SHORTEST = {"story": 60, "scene": 40, "question": 6, "talk": 3}       # words in a first answer
LONGEST = {"story": 420, "scene": 380, "question": 110, "talk": 80}
LATER = (3, 260)
MOST_NAMES, HARD_WORD, MOST_HARD = 5, 9, 0.05                         # in a story: distinct names; letters; share of such words
HELD_OUT_ONE_IN = 80


def repetitive(words: list[str]) -> bool:
    """Long texts: a four-word run more than three times, or few distinct three-word runs. Any text: one word over and over."""
    if len(words) < 12:
        return False
    if Counter(words).most_common(1)[0][1] > max(6, 0.14 * len(words)):
        return True
    fours = Counter(zip(words, words[1:], words[2:], words[3:]))
    threes = list(zip(words, words[1:], words[2:]))
    return fours.most_common(1)[0][1] > 3 or len(set(threes)) < 0.80 * len(threes)


def good(answer: str, shortest: int, longest: int) -> bool:
    words = re.findall(r"[a-z']+", answer.lower())
    if not shortest <= len(words) <= longest or BOILERPLATE.search(answer) or LISTS.search(answer):
        return False
    if answer.count('"') % 2 or answer[-1] not in '.!?"' or not (answer[0].isupper() or answer[0] in "\"0123456789"):
        return False
    sentences = [s.strip().lower() for s in re.split(r"[.!?]+", answer) if len(s.split()) > 3]
    return len(set(sentences)) > len(sentences) - 2 and not repetitive(words)


def simple(request: str, story: str) -> bool:
    """Few names, the first one asked for among them, and few long words."""
    capitals = Counter(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]+", story))
    asked = re.search(r"named ([A-Z][a-z]+)", request)
    if len(capitals) > MOST_NAMES or asked and len(re.findall(rf"\b{asked[1]}\b", story)) < 2:
        return False
    words = re.findall(r"[a-z]+", story)
    return sum(len(word) >= HARD_WORD for word in words) <= MOST_HARD * len(words)


def tidy(answer: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+", " ", answer)).replace(" \n", "\n").replace("\n ", "\n").strip()


def chat(messages: list[dict], system: str) -> str:
    if system:
        messages = [dict(role="system", content=system), *messages]
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def document(line: str) -> dict | None:
    raw = json.loads(line)
    kept = []
    answers = [m for m in raw["messages"] if m["role"] == "assistant"]
    for n, (user, answer) in enumerate(zip(raw["messages"][::2], answers)):
        text = tidy(answer["content"])
        cut = n == len(answers) - 1 and not raw["finished"]
        bounds = (SHORTEST[raw["kind"]], LONGEST[raw["kind"]]) if n == 0 else LATER
        story = n == 0 and raw["kind"] in ("story", "scene")
        if cut or not text or not good(text, *bounds) or story and not simple(user["content"], text):
            break
        kept += [user, dict(role="assistant", content=text)]
    if not kept:
        return None
    request, first = kept[0]["content"], kept[1]["content"]
    plain = raw["kind"] in ("story", "scene") and len(kept) == 2 and zlib.crc32(first.encode()) % 2 == 0
    return dict(text=first if plain else chat(kept, raw["system"]), kind=raw["kind"], answer=first,
                held_out=zlib.crc32(request.encode()) % HELD_OUT_ONE_IN == 0, key=zlib.crc32((first[:80] + request).encode()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--raw", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    read, kept, seen = Counter(), Counter(), set()
    with open(args.raw) as raw, Pool() as pool, open(args.out, "w") as out:
        lines = raw.readlines()
        read.update(json.loads(line)["kind"] for line in lines)
        for doc in pool.imap(document, lines, chunksize=512):
            if doc and doc["key"] not in seen:
                seen.add(doc["key"])
                kept[doc["kind"]] += 1
                out.write(json.dumps({k: doc[k] for k in ("text", "kind", "held_out")}) + "\n")
    print("kept", {k: f"{kept[k]}/{read[k]}" for k in read}, flush=True)


if __name__ == "__main__":
    main()
