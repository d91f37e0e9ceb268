"""Keep the good answers of raw corpora.

    python clean_corpus.py --raw raw.jsonl --tokenizer tokenizer/tokenizer.json --out corpus.jsonl

A conversation is kept up to its first answer that breaks a rule of `broken`, and dropped if that is the first answer
or begins like one kept before. A story that goes wrong late is cut after its last sentence that reads as an ending, if
one comes before and leaves a story that breaks no rule. What these filters let through is what the small models learn
to do, so the rules, and for each kind how many first answers broke them, are printed.
A story that says too little of what its request asks for is kept plain, as a document without the request and what
follows: a model cannot learn from it to heed a request. About a quarter of the stories, those that keep to the request best
and repeat themselves least, and everything that is no story are marked best: training ends with them. Requests decide the
split: one in eighty is held out, with every answer to it.
Each line out: {"kind", "system", "messages": [{"role", "content"}, ...], "plain", "best", "held_out"}. That may be read again,
several files joined, to filter by other rules or to drop what two of them share.
"""
import argparse
import json
import re
import zlib
from collections import Counter, defaultdict
from multiprocessing import Pool

from tokenizers import Tokenizer

from prompts import STYLES
from renaming import asked_heroes, asked_names, asked_things, times_told

BOILERPLATE = re.compile(
    r"language model|\bAI\b|SmolLM|Hugging ?Face|assistant|chatbot|as requested|I'm sorry, but|I cannot (?:provide|assist)|"
    r"here(?:'s| is) (?:a|an|the|your) (?:short |little |brief |simple |bedtime )*(?:story|scene|conversation|talk|dialogue|name)|"
    r"(?:simple|short|little|two|three) (?:sentence|answer|scene)|kind teacher|friendly helper|storyteller|"
    r"end of the (?:story|scene)|the (?:story|scene) (?:is|was|begins|ends|ended|went|continues)|"
    r"\b(?:title|scene|moral|user|narrator)\s*:|https?:|\*\*|##|```|\[|\]|<|>|_{2,}|\{|\}", re.IGNORECASE)
LISTS = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s", re.MULTILINE)
SHORTEST = {"story": 60, "scene": 40, "question": 6, "talk": 3}       # words in a first answer
LONGEST = {"story": 300, "scene": 260, "question": 110, "talk": 80}   # 300 words are about 390 tokens
LATER = (3, 160)
STORIES = "story", "scene"
MOST_NAMES, HARD_WORD, MOST_HARD = 8, 9, 0.07                         # in a story: distinct names; letters; share of such words
DISTINCT_THREES, MOST_FOURS = 0.86, 3
WINDOW, DISTINCT = 50, 0.60                                           # words; their share that is distinct, mean over the windows
BEST_THREES, BEST_FOURS, BEST_DISTINCT = 0.92, 2, 0.66                # the same of the best stories
ON_TOPIC = 0.5                                                        # share of the request's content words in its story
HEEDED = 0.6                                                          # the same, of a story that is kept with its request
THING, BEST_THING = 2, 3                                              # times that such a story, one of the best, says the thing
CUT_AFTER = 80                                                        # words that a story cut short has at least
ENDS = re.compile(                                                    # in a sentence that ends a story
    r"ever after|from that (?:day|night|moment) on|\bthe end\b|always remembered|never forgot|learned (?:that|a|the|how|to)|"
    r"lesson|fell asleep|went to (?:sleep|bed)|good ?night|went (?:back |all )?home|friends forever|best of friends",
    re.IGNORECASE)
HELD_OUT_ONE_IN = 80
INSTRUCTION = set(                                                    # words of a request that no story need repeat
    "write tell please would like story short little bedtime child about with that this happens meets what they does "
    "each other talk between scene where asks help conversation agree named small good very some have from into them "
    "their there were your will make more than when being learning making getting finding something".split())


def repetitive(text: str) -> bool:
    """A sentence twice, a long word three times running, a four-word run too often, few distinct three-word runs, or one
    word over and over."""
    sentences = [s.strip().lower() for s in re.split(r"[.!?\"]+", text) if len(s.split()) > 3]
    if len(set(sentences)) < len(sentences):
        return True
    words = re.findall(r"[a-z']+", text.lower())
    if len(words) < 12:
        return False
    if Counter(words).most_common(1)[0][1] > max(6, 0.14 * len(words)):
        return True
    if any(a == b == c and len(a) > 4 for a, b, c in zip(words, words[1:], words[2:])):
        return True
    return loops(text) or distinct_threes(words) < DISTINCT_THREES


def most_fours(text: str) -> int:
    """How often the run of four words that occurs most often does."""
    words = re.findall(r"[a-z']+", text.lower())
    return max(Counter(zip(words, words[1:], words[2:], words[3:])).values(), default=0)


def loops(text: str) -> bool:
    return most_fours(text) > MOST_FOURS


def distinct_threes(words: list[str]) -> float:
    threes = list(zip(words, words[1:], words[2:]))
    return len(set(threes)) / max(1, len(threes))


def distinct_words(story: str) -> float:
    """The moving average of the type-token ratio: low where the same few words are said again and again."""
    words = re.findall(r"[a-z']+", story.lower())
    windows = [words[i:i + WINDOW] for i in range(0, max(1, len(words) - WINDOW + 1), 10)]
    return sum(len(set(w)) for w in windows) / sum(map(len, windows))


def varied(story: str) -> bool:
    threes = distinct_threes(re.findall(r"[a-z']+", story.lower()))
    return distinct_words(story) >= BEST_DISTINCT and threes >= BEST_THREES and most_fours(story) <= BEST_FOURS


def stem(word: str) -> str:
    """The part of a word that its other forms share, roughly: learning, learned -> lear; cookie -> cook."""
    return re.sub(r"(?:ing|ed|es|s|e|y)$", "", word)[:6]


def on_topic(request: str, story: str) -> float:
    """The share of the request's content words that the story says, in any form."""
    for style in STYLES:
        request = request.removesuffix(" " + style)
    content = {stem(w) for w in re.findall(r"\b[a-z]{4,}\b", request.lower()) if w not in INSTRUCTION}
    content -= {stem(name.lower()) for name in asked_names(request)}
    told = {stem(w) for w in re.findall(r"[a-z]{3,}", story.lower())}
    return len(content & told) / max(1, len(content))


def heeds(request: str, story: str, often: int) -> bool:
    """What its heroes are is said, the thing it is about `often` times, and most of the request's other words."""
    return (all(times_told(hero, story) >= 1 for hero in asked_heroes(request))
            and all(times_told(thing, story) >= often for thing in asked_things(request))
            and on_topic(request, story) >= HEEDED)


def capitals(story: str) -> Counter:
    """Capitalised words inside sentences: names, for the most part."""
    return Counter(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]+", story))


def about_the_asked(request: str, story: str) -> bool:
    """The first name asked for occurs twice or more, the others at all, and nobody new more often than these."""
    times = [len(re.findall(rf"\b{name}\b", story)) for name in asked_names(request)]
    others = [len(re.findall(rf"\b{name}\b", story)) for name in capitals(story) if not re.search(rf"\b{name}\b", request)]
    return not times or times[0] >= 2 and min(times) >= 1 and max(others, default=0) <= max(times)


def misspelt(request: str, story: str) -> bool:
    """A capitalised word begins like a name asked for and goes on otherwise: Maurolea for Maurice."""
    starts = "|".join(name[:max(4, len(name) - 3)] for name in asked_names(request) if len(name) > 3)
    return bool(starts) and bool(set(re.findall(rf"\b(?:{starts})[a-z]*", story)) - set(re.findall("[A-Z][a-z]+", request)))


def simple(story: str) -> bool:
    words = re.findall(r"[a-z]+", story)
    return sum(len(word) >= HARD_WORD for word in words) <= MOST_HARD * len(words)


def broken(kind: str, first: bool, request: str, answer: str, ended: bool) -> list[str]:
    """The rules that an answer breaks, by name."""
    shortest, longest = (SHORTEST[kind], LONGEST[kind]) if first else LATER
    words = len(re.findall(r"[A-Za-z']+", answer))
    rules = {"cut off": not ended,
             "too short": words < shortest,
             "too long": words > longest,
             "boilerplate": BOILERPLATE.search(answer) or LISTS.search(answer),
             "ragged": answer.count('"') % 2 or not re.fullmatch(r'[A-Z"0-9].*[.!?"]', answer, re.DOTALL),
             "repetitive": repetitive(answer)}
    if first and kind in STORIES:
        rules |= {"few words": distinct_words(answer) < DISTINCT,
                  "hard words": not simple(answer),
                  "many names": len(capitals(answer)) > MOST_NAMES,
                  "other hero": not about_the_asked(request, answer),
                  "misspelt name": misspelt(request, answer),
                  "off topic": on_topic(request, answer) < ON_TOPIC}
    if first and kind == "scene":
        rules["nobody speaks"] = '"' not in answer
    return [rule for rule, breaks in rules.items() if breaks]


def cut_short(story: str, rules) -> str | None:
    """The longest beginning that ends a paragraph, reads as ended and breaks no rule."""
    for end in reversed([m.end() for m in re.finditer(r"[.!?](?=\n|$)", story)]):
        start, last = story[:end], re.split(r"(?<=[.!?]) |\n", story[:end])[-1]
        if ENDS.search(last) and len(start.split()) >= CUT_AFTER and not rules(start):
            return start
    return None


def tidy(answer: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+", " ", answer)).replace(" \n", "\n").replace("\n ", "\n").strip()


def document(line: str) -> tuple[str, list[str], dict | None]:
    """Kind, rules that the first answer breaks, and what is kept of a conversation."""
    raw = json.loads(line)
    kind, kept, faults = raw["kind"], [], []
    pairs = list(zip(raw["messages"][::2], raw["messages"][1::2]))
    for n, (user, answer) in enumerate(pairs):
        text, request = tidy(answer["content"]), user["content"]
        ended = n < len(pairs) - 1 or raw.get("finished", True)
        wrong = broken(kind, n == 0, request, text, ended)
        if n == 0:
            faults = wrong
        if wrong and n == 0 and kind == "story":
            text = cut_short(text, lambda start: broken(kind, True, request, start, True))
        elif wrong:
            text = None
        if text is None:
            break
        kept += [user, dict(role="assistant", content=text)]
        if wrong:
            break
    if not kept:
        return kind, faults, None
    request, first = kept[0]["content"], kept[1]["content"]
    plain, best = False, True
    if kind in STORIES:
        plain = not heeds(request, first, THING)
        best = heeds(request, first, BEST_THING) and varied(first)
    return kind, faults, dict(kind=kind, system=raw["system"], messages=kept, plain=plain, best=best,
                              held_out=zlib.crc32(request.encode()) % HELD_OUT_ONE_IN == 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--raw", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    read, mended, seen = Counter(), Counter(), set()
    fell, alone = Counter(), Counter()                                # (kind, rule): first answers that broke it; no other
    kept = defaultdict(list)                                          # kind: documents
    with open(args.raw) as raw, Pool() as pool:
        for kind, faults, doc in pool.imap(document, raw, chunksize=512):
            read[kind] += 1
            if doc:
                beginning = doc["messages"][0]["content"], doc["messages"][1]["content"][:80]
                if beginning in seen:
                    doc, faults = None, ["seen before"]
                seen.add(beginning)
            fell.update((kind, rule) for rule in faults)
            alone.update((kind, rule) for rule in faults if len(faults) == 1)
            if doc:
                mended[kind] += bool(faults)
                kept[kind].append(doc)
    with open(args.out, "w") as out:
        out.writelines(json.dumps(doc) + "\n" for docs in kept.values() for doc in docs)

    tok = Tokenizer.from_file(args.tokenizer)
    for kind in read:
        docs = kept[kind]
        texts = [m["content"] for doc in docs for m in doc["messages"]]
        tokens = sum(len(e.ids) for e in tok.encode_batch_fast(texts, add_special_tokens=False))
        print(f"{kind}: kept {len(docs)} of {read[kind]} ({len(docs) / read[kind]:.0%}), {mended[kind]} of these cut short, "
              f"{tokens / 1e6:.2f} M tokens; broken rules (alone): "
              + ", ".join(f"{rule} {n} ({alone[k, rule]})" for (k, rule), n in fell.most_common() if k == kind), flush=True)


if __name__ == "__main__":
    main()
