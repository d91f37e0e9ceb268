"""Streamed text, joined, is the decoded answer; characters and stop strings never come out half."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from vtlite.engine.detokenizer import Detokenizer


class ByteTokenizer:
    """One token per byte, decoded as byte-level BPE does; id 256 is special."""

    def __init__(self):
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        self.backend = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
        self.backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.backend.decoder = decoders.ByteLevel()
        self.backend.add_special_tokens(["<end>"])

    def encode(self, text):
        return self.backend.encode(text).ids

    def decode(self, ids, skip_special_tokens=True):
        return self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)


class WordTokenizer(ByteTokenizer):
    """Words that carry their space in front, as sentencepiece writes them; unknown characters fall back to bytes."""

    def __init__(self):
        words = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581once", "\u2581upon", "\u2581a", "time", "s"]
        self.backend = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True))
        self.backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                                  decoders.Fuse(), decoders.Strip(" ", 1, 0)])


BYTES, WORDS = ByteTokenizer(), WordTokenizer()


def stream(tokenizer, ids, prompt=(), **options):
    detokenizer = Detokenizer(tokenizer, list(prompt), **options)
    pieces = []
    for token in ids:
        pieces.append(detokenizer.push(token))
        if detokenizer.stopped_by is not None:
            break
    return [*pieces, detokenizer.flush()], detokenizer.stopped_by


@settings(max_examples=300)
@given(st.text(max_size=40))
def test_pieces_join_to_the_text_and_hold_no_half_character(text):
    pieces, _ = stream(BYTES, BYTES.encode(text), prompt=BYTES.encode("a prompt: "))
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@settings(max_examples=200)
@given(st.lists(st.integers(0, 255), max_size=40))
def test_bytes_that_are_not_utf8_come_out_as_decode_shows_them(ids):
    pieces, _ = stream(BYTES, ids)
    assert "".join(pieces) == BYTES.decode(ids)


WORD_IDS = st.lists(st.integers(257, 261), min_size=1, max_size=3)
CHARACTER_IDS = st.characters(exclude_categories=["Cs"]).map(lambda c: [1 + b for b in c.encode()])


@settings(max_examples=200)
@given(st.lists(WORD_IDS | CHARACTER_IDS, max_size=20), st.lists(st.integers(257, 261), max_size=8))
def test_sentencepiece_spaces_and_byte_runs_survive_streaming(chunks, prompt):
    ids = [i for chunk in chunks for i in chunk]
    pieces, _ = stream(WORDS, ids, prompt=prompt)
    assert WORDS.decode(prompt) + "".join(pieces) == WORDS.decode(prompt + ids)


def test_a_word_after_the_prompt_keeps_its_space():
    pieces, _ = stream(WORDS, [258, 259], prompt=[257])          # "once" | " upon a"
    assert "".join(pieces) == " upon a"


def test_invalid_bytes_are_not_held_back_for_ever():
    pieces, _ = stream(BYTES, BYTES.encode("x")[:1] + [BYTES.encode("é")[0]] * 50)
    assert sum(map(len, pieces[:-1])) > 40


@pytest.mark.parametrize("include, expected", [(False, "one "), (True, "one two")])
def test_a_stop_string_across_tokens_cuts_the_text(include, expected):
    pieces, stopped_by = stream(BYTES, BYTES.encode("one two three"), stop=("two",), include_stop=include)
    assert ("".join(pieces), stopped_by) == (expected, "two")


def test_what_could_begin_a_stop_string_waits_and_comes_out_when_it_does_not():
    detokenizer = Detokenizer(BYTES, [], stop=("###",))
    assert [detokenizer.push(t) for t in BYTES.encode("a##b")] == ["a", "", "", "##b"]


def test_the_stop_string_that_completes_first_wins_and_ties_go_to_the_first_listed():
    assert stream(BYTES, BYTES.encode("abcd"), stop=("abcd", "bc"))[1] == "bc"
    assert stream(BYTES, BYTES.encode("xabc"), stop=("bc", "abc")) == (["x", "", "", "a", ""], "bc")


def test_min_tokens_lets_a_stop_string_pass():
    detokenizer = Detokenizer(BYTES, [], stop=("b",))
    text = "".join(detokenizer.push(t, may_stop=i >= 3) for i, t in enumerate(BYTES.encode("abcab")))
    assert text + detokenizer.flush() == "abca" and detokenizer.stopped_by == "b"


@settings(max_examples=300)
@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_stopping_while_streaming_equals_cutting_the_whole_text(text, stops):
    pieces, stopped_by = stream(BYTES, BYTES.encode(text), stop=tuple(stops))
    ends = [(text.find(s) + len(s), i) for i, s in enumerate(stops) if s in text]
    if not ends:
        assert ("".join(pieces), stopped_by) == (text, None)
    else:
        winner = stops[min(ends)[1]]
        assert ("".join(pieces), stopped_by) == (text[: text.find(winner)], winner)


def test_special_tokens_are_left_out_unless_asked_for():
    end = BYTES.backend.token_to_id("<end>")
    assert "".join(stream(BYTES, [*BYTES.encode("hi"), end])[0]) == "hi"
    assert "".join(stream(BYTES, [*BYTES.encode("hi"), end], skip_special_tokens=False)[0]) == "hi<end>"
