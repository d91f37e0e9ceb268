"""Give the characters of a conversation other names, so that a model learns to take names from the request.

A small model that sees the same names thousands of times learns them by heart and falls back to them when it is asked
about one it has not met. So the corpus is packed in several copies: in each, every name that a request asks for
becomes another one in all turns, half of the time one from a list and half of the time one made of syllables that no
list holds. Copying the name from the request is then all that helps. In half of the copies the animals become others in
the same way (a weasel for a badger, or one that no request names), and so do the thing that a story is about (a cello
for a flute) and a character's trade. Pronouns stay; a listed name follows the girl, boy or Mrs. before it.
`rename(messages, rng)` is a pure function of its arguments. No word of prompts.HELD_OUT is ever drawn.
"""
import re
from random import Random

from names import ALIKE, FEMALE, MALE, RARE, SURNAMES, THINGS, TRADES, made_up
from prompts import HELD_OUT, STATES

INSTEAD = {word: kind for kinds in (ALIKE, THINGS, TRADES) for kind in kinds for word in kind}
UNSEEN = {word.lower() for request in HELD_OUT for word in re.findall(r"[A-Za-z]+", request)}
SWAPPED = 0.5                               # share of the copies in which a noun that has others like it is one of these
RARELY = 0.6                                # of the swapped animals: share that becomes one of RARE
NOUN = re.compile(rf"\b([a-z]+(?: cub)?) named\b|\b(?:{'|'.join(STATES)}) ([a-z]+)\b")    # who, and what it is about

TITLE = r"(?:(?:Mr\.|Mrs\.|Miss|Captain|Sir|Slow) )?"
NAMED = re.compile(rf"\bnamed {TITLE}([A-Z][a-z]+)(?: and ([A-Z][a-z]+))?")
SHE = re.compile(r"\b(?:girl|sisters|witch|princess|queen|grandmother|hen|cow)\b[^,.]* named|named Miss")
HE = re.compile(r"\b(?:boy|brothers|wizard|prince|knight|king|fisherman|postman)\b[^,.]* named|named Sir")


def asked_names(request: str) -> list[str]:
    """The names a request gives its characters, in order, without titles."""
    return [name for pair in NAMED.findall(request) for name in pair if name]


def draw_name(rng: Random, before: str, taken: str) -> str:
    """A name that fits the words before it and is not yet in the text `taken`, in lower case."""
    if before.endswith(("Mr. ", "Mrs. ")):
        listed = SURNAMES
    else:
        listed = FEMALE if SHE.search(before) else MALE if HE.search(before) else FEMALE + MALE
    while True:
        name = made_up(rng) if rng.random() < 0.5 else rng.choice(listed)
        if name.lower() not in UNSEEN and name.lower() not in taken:
            return name


def other_names(messages: list[dict], taken: str, rng: Random) -> dict[str, str]:
    new = {}
    for message in messages:
        for match in NAMED.finditer(message["content"]) if message["role"] == "user" else ():
            before = message["content"][max(0, match.start() - 30):match.start(1)]
            for name in filter(None, match.groups()):
                if name not in new:
                    new[name] = draw_name(rng, before, taken)
                    taken += " " + new[name].lower()
    return new


def other_nouns(messages: list[dict], taken: str, rng: Random) -> dict[str, str]:
    new = {}
    for noun in map("".join, NOUN.findall(messages[0]["content"])):
        noun = noun if noun in INSTEAD else noun.split()[-1]
        alike = RARE if any(noun in kind for kind in ALIKE) and rng.random() < RARELY else INSTEAD.get(noun, ())
        fresh = [n for n in alike if n not in taken and n not in new.values() and n not in UNSEEN]
        if fresh and rng.random() < SWAPPED:
            new[noun] = rng.choice(fresh)
    return new


def plural(noun: str) -> str:
    if noun[-1] == "y" and noun[-2] not in "aeo":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("x", "s", "sh", "ch")) else "s")


def swap_noun(text: str, old: str, new: str) -> str:
    """Singular and plural, capitalised or not, with the article where it stands right before."""
    def put(match):
        article, noun = match.groups()
        if article:
            article = article[0] + ("n " if new[0] in "aeiou" else " ")
        put_in = plural(new) if noun.lower() == plural(old) else new
        return (article or "") + (put_in.capitalize() if noun[0].isupper() else put_in)
    return re.sub(rf"\b([Aa]n? )?({plural(old)}|{old})\b", put, text, flags=re.IGNORECASE)


def rename(messages: list[dict], rng: Random) -> list[dict]:
    taken = " ".join(m["content"] for m in messages).lower()
    names, nouns = other_names(messages, taken, rng), other_nouns(messages, taken, rng)
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b") if names else None
    renamed = []
    for message in messages:
        text = message["content"]
        for old, new in nouns.items():
            text = swap_noun(text, old, new)
        if pattern:
            text = pattern.sub(lambda match: names[match[1]], text)
        renamed.append(dict(message, content=text))
    return renamed
