"""Give the characters of a conversation other names, so that a model learns to take names from the request.

A small model that sees the same names thousands of times learns them by heart and falls back to them when it is asked
about one it has not met. So the corpus is packed in several copies: in each, every name that a request asks for
becomes another one in all turns, half of the time one from a list and half of the time one made of syllables that no
list holds. Copying the name from the request is then all that helps. In some copies an animal becomes another of its
kind in the same way (a weasel for a badger). Pronouns stay; a listed name follows the girl, boy or Mrs. before it.
`rename(messages, rng)` is a pure function of its arguments. No name of prompts.HELD_OUT is ever drawn.
"""
import re
from random import Random

from names import ALIKE, FEMALE, MALE, SURNAMES, made_up
from prompts import HELD_OUT

KIND = {animal: kind for kind in ALIKE for animal in kind}
UNSEEN = {word.lower() for request in HELD_OUT for word in re.findall(r"[A-Za-z]+", request)}
OTHER_ANIMAL = 0.4                          # of the copies whose animal has others like it

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


def other_animals(messages: list[dict], taken: str, rng: Random) -> dict[str, str]:
    new = {}
    for animal in re.findall(r"\b([a-z]+(?: cub)?) named\b", messages[0]["content"]):
        animal = animal if animal in KIND else animal.split()[-1]
        fresh = [a for a in KIND.get(animal, ()) if a not in taken and a not in new.values()]
        if fresh and rng.random() < OTHER_ANIMAL:
            new[animal] = rng.choice(fresh)
    return new


def plural(noun: str) -> str:
    if noun[-1] == "y" and noun[-2] not in "aeo":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("x", "s", "sh", "ch")) else "s")


def swap_animal(text: str, old: str, new: str) -> str:
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
    names, animals = other_names(messages, taken, rng), other_animals(messages, taken, rng)
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b") if names else None
    renamed = []
    for message in messages:
        text = message["content"]
        for old, new in animals.items():
            text = swap_animal(text, old, new)
        if pattern:
            text = pattern.sub(lambda match: names[match[1]], text)
        renamed.append(dict(message, content=text))
    return renamed
