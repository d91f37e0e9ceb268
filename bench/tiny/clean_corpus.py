"""Keep the good answers of a raw corpus.

    python clean_corpus.py --raw raw.jsonl --out corpus.jsonl

A conversation is kept up to its first bad answer. Bad: cut off, too short, repetitive, about being a language
model, marked up, or seen before; for a story also long, hard words, a crowd of names, off its topic, or about
somebody else than it was to be about. What these filters let through is what the small models learn to do.
Half of the kept stories are marked plain: a document without its request. Requests decide the split: one in
eighty is held out, with every answer to it.
Each line out: {"kind", "system", "messages": [{"role", "content"}, ...], "plain", "held_out"}.
"""
import argparse
import json
import re
import zlib
from collections import Counter
from multiprocessing import Pool

from prompts import STYLES
from renaming import asked_names

BOILERPLATE = re.compile(
    r"language model|\bAI\b|SmolLM|Hugging ?Face|assistant|chatbot|as requested|I'm sorry, but|I cannot (?:provide|assist)|"
    r"here(?:'s| is) (?:a|an|the|your) (?:short |little |brief |simple |bedtime )*(?:story|scene|conversation|talk|dialogue|name)|"
    r"(?:simple|short|little|two|three) (?:sentence|answer|scene)|kind teacher|friendly helper|storyteller|"
    r"end of the (?:story|scene)|the (?:story|scene) (?:is|was|begins|ends|ended|went|continues)|"
    r"\b(?:title|scene|moral|user|narrator)\s*:|https?:|\*\*|##|```|\[|\]|<|>|_{2,}|\{|\}", re.IGNORECASE)
LISTS = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s", re.MULTILINE)
SHORTEST = {"story": 60, "scene": 40, "question": 6, "talk": 3}       # words in a first answer
LONGEST = {"story": 240, "scene": 240, "question": 110, "talk": 80}   # 240 words are about 310 tokens
LATER = (3, 160)
MOST_NAMES, HARD_WORD, MOST_HARD = 5, 9, 0.05                         # in a story: distinct names; letters; share of such words
DISTINCT_THREES, MOST_FOURS = 0.86, 3
ON_TOPIC = 0.5                                                        # share of the request's content words in its story
HELD_OUT_ONE_IN = 80
INSTRUCTION = set(                                                    # words of a request that no story need repeat
    "write tell please would like story short little bedtime child about with that this happens meets what they does "
    "each other talk between scene where asks help conversation agree named small good very some have from into them "
    "their there were your will make more than when being learning making getting finding something".split())


def repetitive(text: str) -> bool:
    """A sentence twice, a four-word run too often, few distinct three-word runs, or one word over and over."""
    sentences = [s.strip().lower() for s in re.split(r"[.!?\"]+", text) if len(s.split()) > 3]
    if len(set(sentences)) < len(sentences):
        return True
    words = re.findall(r"[a-z']+", text.lower())
    if len(words) < 12:
        return False
    if Counter(words).most_common(1)[0][1] > max(6, 0.14 * len(words)):
        return True
    fours = Counter(zip(words, words[1:], words[2:], words[3:]))
    threes = list(zip(words, words[1:], words[2:]))
    return fours.most_common(1)[0][1] > MOST_FOURS or len(set(threes)) < DISTINCT_THREES * len(threes)


def good(answer: str, shortest: int, longest: int) -> bool:
    if not shortest <= len(re.findall(r"[A-Za-z']+", answer)) <= longest or BOILERPLATE.search(answer) or LISTS.search(answer):
        return False
    if answer.count('"') % 2 or answer[-1] not in '.!?"' or not (answer[0].isupper() or answer[0] in "\"0123456789"):
        return False
    return not repetitive(answer)


def stem(word: str) -> str:
    """The part of a word that its other forms share, roughly: learning, learned -> lear; cookie -> cook."""
    return re.sub(r"(?:ing|ed|es|s|e|y)$", "", word)[:6]


def on_topic(request: str, story: str) -> bool:
    for style in STYLES:
        request = request.removesuffix(" " + style)
    content = {stem(w) for w in re.findall(r"\b[a-z]{4,}\b", request.lower()) if w not in INSTRUCTION}
    content -= {stem(name.lower()) for name in asked_names(request)}
    told = {stem(w) for w in re.findall(r"[a-z]{3,}", story.lower())}
    return len(content & told) >= ON_TOPIC * len(content)


def about_the_asked(request: str, story: str) -> bool:
    """The first name asked for occurs twice or more, the others at all, and nobody new more often than these."""
    capitals = Counter(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]+", story))
    asked = asked_names(request)
    times = [len(re.findall(rf"\b{name}\b", story)) for name in asked]
    others = [len(re.findall(rf"\b{name}\b", story)) for name in capitals if not re.search(rf"\b{name}\b", request)]
    if len(capitals) > MOST_NAMES:
        return False
    return not asked or times[0] >= 2 and min(times) >= 1 and max(others, default=0) <= max(times)


def simple(story: str) -> bool:
    words = re.findall(r"[a-z]+", story)
    return sum(len(word) >= HARD_WORD for word in words) <= MOST_HARD * len(words)


def tidy(answer: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+", " ", answer)).replace(" \n", "\n").replace("\n ", "\n").strip()


def document(line: str) -> dict | None:
    raw = json.loads(line)
    kept = []
    answers = [m for m in raw["messages"] if m["role"] == "assistant"]
    for n, (user, answer) in enumerate(zip(raw["messages"][::2], answers)):
        text, request = tidy(answer["content"]), user["content"]
        cut = n == len(answers) - 1 and not raw["finished"]
        bounds = (SHORTEST[raw["kind"]], LONGEST[raw["kind"]]) if n == 0 else LATER
        story = n == 0 and raw["kind"] in ("story", "scene")
        if cut or not text or not good(text, *bounds):
            break
        if n == 0 and raw["kind"] == "scene" and '"' not in text:
            break
        if story and not (simple(text) and about_the_asked(request, text) and on_topic(request, text)):
            break
        kept += [user, dict(role="assistant", content=text)]
    if not kept:
        return None
    request, first = kept[0]["content"], kept[1]["content"]
    plain = raw["kind"] in ("story", "scene") and len(kept) == 2 and zlib.crc32(first.encode()) % 2 == 0
    return dict(kind=raw["kind"], system=raw["system"], messages=kept, plain=plain,
                held_out=zlib.crc32(request.encode()) % HELD_OUT_ONE_IN == 0)


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
            if doc is None:
                continue
            key = doc["messages"][0]["content"], doc["messages"][1]["content"][:80]
            if key not in seen:
                seen.add(key)
                kept[doc["kind"]] += 1
                out.write(json.dumps(doc) + "\n")
    print("kept", {k: f"{kept[k]}/{read[k]}" for k in read}, flush=True)


if __name__ == "__main__":
    main()
