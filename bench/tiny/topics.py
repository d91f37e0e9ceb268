"""Count how often the stories of a checkpoint keep to requests about heroes and things it was never asked about.

    python topics.py --model tiny-hybrid/ --out topics/tiny-hybrid.json

The requests join a name, a hero of prompts.UNSEEN_HEROES and a thing of prompts.UNSEEN_THINGS, words that no list of the
corpus holds and that renaming.py never draws. Answers are sampled as generation_config.json says, with seed 7, until an
end token or 250 new tokens, in float32. A story keeps the name or the thing if it says it twice or more, and the hero if it
says once what the hero is.
"""
import argparse
import json
import re
from collections import Counter
from pathlib import Path
from random import Random

import torch

from clean_corpus import loops
from names import made_up
from prompts import STATES, UNSEEN_HEROES, UNSEEN_THINGS, with_article
from renaming import times_told
from samples import SEED, WAYS, answers, load

LONGEST = 250
PATTERNS = ["Write a short story about a {hero} named {name} and {thing}.",
            "Tell me a story about {thing}. It is about a {hero} named {name}.",
            "Write a story for a child about {thing}, with a {hero} named {name}.",
            "Please tell me a bedtime story about a {hero} named {name} who finds {thing}."]


def requests(count: int) -> list[dict]:
    """`count` requests with what each asks for, the same every time."""
    rng, asked = Random(SEED), []
    for n in range(count):
        hero, thing, name = rng.choice(UNSEEN_HEROES), rng.choice(UNSEEN_THINGS), made_up(rng)
        text = PATTERNS[n % len(PATTERNS)].format(hero=hero, name=name, thing=with_article(f"{rng.choice(STATES)} {thing}"))
        asked.append(dict(request=re.sub(r"\ba (?=[aeiou])", "an ", text), name=name, hero=hero, thing=thing))
    return asked


def kept(asked: dict, story: str) -> dict[str, bool]:
    told = dict(name=times_told(asked["name"], story) >= 2, hero=times_told(asked["hero"], story) >= 1,
                thing=times_told(asked["thing"], story) >= 2)
    return told | dict(all=all(told.values()), loops=loops(story))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--repetition-penalty", type=float, help="in place of the checkpoint's own")
    args = parser.parse_args()
    model, tok = load(args.model)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    asked = requests(args.count)
    options = dict(WAYS["sampled"])
    if args.repetition_penalty:
        options["repetition_penalty"] = args.repetition_penalty
    stories = answers(model, tok, [a["request"] for a in asked], LONGEST, **options)
    counts = Counter()
    for a, (story, _) in zip(asked, stories):
        a |= dict(story=story, kept=kept(a, story))
        counts.update(what for what, is_so in a["kept"].items() if is_so)
    print(f"{args.model}: of {args.count} stories kept {dict(counts)}", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(dict(stories=args.count, counts=counts, answers=asked), indent=1) + "\n")


if __name__ == "__main__":
    main()
