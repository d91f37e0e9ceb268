"""What the bundled models were trained on: requests renamed in all turns, and none about what their cards ask for."""

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings, strategies as st


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """The scripts of bench/tiny import each other by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent.parent / "bench" / "tiny"))
        yield


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def unseen() -> set[str]:
    from prompts import UNSEEN_HEROES, UNSEEN_THINGS
    return set(UNSEEN_HEROES + UNSEEN_THINGS)


def conversation(rng: Random) -> list[dict]:
    """A request of the lists, an answer that says all of it twice, and a follow-up about its heroes."""
    from prompts import sample
    request = sample(rng).turns[0]
    return [dict(role="user", content=request), dict(role="assistant", content=f"{request} Then, again: {request}"),
            dict(role="user", content="Tell me more.")]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2 ** 32))
def test_no_request_names_what_the_cards_ask_for(seed):
    from renaming import rename
    messages = conversation(Random(seed))
    for message in messages + rename(messages, Random(seed)):
        assert not words(message["content"]) & unseen()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2 ** 32))
def test_renaming_exchanges_names_and_nouns_in_every_turn(seed):
    from renaming import SWAPPED, asked_heroes, asked_names, asked_things, rename
    messages = conversation(Random(seed))
    renamed = rename(messages, Random(seed))
    request = messages[0]["content"]
    for old, new in zip(asked_names(request), asked_names(renamed[0]["content"]), strict=True):
        assert new != old and renamed[1]["content"].count(new) >= 2
    for noun in asked_heroes(request) + asked_things(request):
        if noun in SWAPPED:
            assert not re.search(rf"\b{noun} named\b", renamed[1]["content"])
    assert rename(messages, Random(seed)) == renamed


@pytest.mark.parametrize("request_, heroes, things", [
    ("Tell a story about a careful snail named Bridget, an old fox cub named Flora and a muddy puddle.",
     ["snail", "fox cub"], ["puddle"]),
    ("Write a short story about an old turtle named Walter on a windy autumn day.", ["turtle"], []),
    ("Can you tell me a story about a magic hat?", [], ["hat"])])
def test_heroes_and_things_of_a_request(request_, heroes, things):
    from renaming import asked_heroes, asked_things
    assert asked_heroes(request_) == heroes and asked_things(request_) == things


def test_a_story_that_does_not_heed_its_request_is_kept_without_it():
    from clean_corpus import THING, heeds
    request = "Tell me a story about a shy fox named Fern and a lost kite."
    assert heeds(request, "Fern was a shy fox. She lost her kite. The kite was in a tree.", THING)
    assert not heeds(request, "Fern was a shy fox. She lost her kite.", THING)                # the kite once only
    assert not heeds(request, "Fern was shy. She lost her kite. The kite was in a tree.", THING)   # never says what she is


def test_an_article_follows_the_noun_that_is_put_in():
    from renaming import swap_noun
    assert swap_noun("A fox met an owl. Foxes like owls.", "fox", "ibex") == "An ibex met an owl. Ibexes like owls."
    assert swap_noun("A fox met an owl.", "owl", "puffin") == "A fox met a puffin."
