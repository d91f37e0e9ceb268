"""Exchange the names, animals, trades and things of a conversation, so that a model learns to take them from the request.

A small model that sees the same names thousands of times learns them by heart and falls back to them when it is asked
about one it has not met; it does the same with a hero's kind and with the thing a story is about. So the corpus is packed in
several copies, and in each, every name that a request asks for becomes another one in all turns, and so does every animal,
trade and thing: a weasel or a puffin for a badger, a cello or a thimble for a flute, and half of the time a word made of
syllables that no list holds. Copying from the request is then all that helps. Pronouns stay; a listed name follows the
girl, boy or Mrs. before it.
`rename(messages, rng)` is a pure function of its arguments. No word of prompts.HELD_OUT, UNSEEN_HEROES or UNSEEN_THINGS is
ever drawn.
"""
import re
from random import Random

from names import ALIKE, FEMALE, MALE, RARE_ANIMALS, RARE_THINGS, SURNAMES, THINGS, TRADES, made_up
from prompts import HELD_OUT, OBJECTS, STATES, UNSEEN_HEROES, UNSEEN_THINGS

INSTEAD = {word: kind for kinds in (ALIKE, THINGS, TRADES) for kind in kinds for word in kind}
ANIMALS = {word for kind in ALIKE for word in kind}
VERBS_TOO = {"brush", "cook", "lock", "picture", "ring", "rose", "slide", "swing", "watch"}    # so they stay
SWAPPED = (set(INSTEAD) | set(OBJECTS)) - VERBS_TOO
UNSEEN = {word.lower() for request in HELD_OUT + UNSEEN_HEROES + UNSEEN_THINGS for word in re.findall(r"[A-Za-z]+", request)}
MADE_UP, RARELY = 0.5, 0.5                  # shares of the names and nouns drawn that are made up; of the other nouns, rare
HERO = re.compile(r"\b([a-z]+(?: cub)?) named\b")
THING = re.compile(rf"\b(?:{'|'.join(STATES)}) ([a-z]+)\b(?! (?:cub )?named)")

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
        name = made_up(rng) if rng.random() < MADE_UP else rng.choice(listed)
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


def asked_heroes(request: str) -> list[str]:
    """What the heroes that a request names are: badger, farmer, girl."""
    return HERO.findall(request)


def asked_things(request: str) -> list[str]:
    """What a request is about, where it says in which state: the flute of a lost flute."""
    return THING.findall(request)


def draw_noun(rng: Random, noun: str) -> str:
    if rng.random() < MADE_UP:
        return made_up(rng).lower()
    if noun in INSTEAD and (noun in TRADES[0] or rng.random() >= RARELY):
        return rng.choice(INSTEAD[noun])
    return rng.choice(RARE_ANIMALS if noun in ANIMALS else RARE_THINGS)


def other_nouns(messages: list[dict], taken: str, rng: Random) -> dict[str, str]:
    request, new = messages[0]["content"], {}
    for noun in asked_heroes(request) + asked_things(request):
        noun = noun if noun in SWAPPED else noun.split()[-1]
        while noun in SWAPPED and noun not in new:
            drawn = draw_noun(rng, noun)
            if drawn not in taken and drawn not in new.values() and drawn not in UNSEEN:
                new[noun] = drawn
    return new


def plural(noun: str) -> str:
    if noun[-1] == "y" and noun[-2] not in "aeo":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("x", "s", "sh", "ch")) else "s")


def times_told(word: str, story: str) -> int:
    """How often a word stands in a story, in singular or plural, capitalised or not."""
    return len(re.findall(rf"\b(?:{word}|{plural(word)})\b", story, re.IGNORECASE))


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
