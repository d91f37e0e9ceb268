"""vtlite/checkpoint/gguf_sentencepiece.py: the ids are those of sentencepiece's own rule, applied literally."""

import pytest
from hypothesis import given, settings, strategies as st

from tests.tiny_gguf import write
from vtlite.checkpoint.gguf import convert
from vtlite.checkpoint.gguf_sentencepiece import BYTE_PIECES
from vtlite.checkpoint.tokenizer import Tokenizer
from vtlite.errors import CheckpointError

WORDS = ["▁t", "he", "in", "▁the", "re", "er", "▁a", "an", "the", "▁▁", "ere", "▁there", "▁▁▁▁", "nn"]   # best first
PIECES = [*WORDS, *"▁etainhrs"]
TOKENS = ["<unk>", "<s>", "</s>", *BYTE_PIECES, *PIECES]
OPTIONS = dict(model="llama", pre=None, tokens=TOKENS, types=[2, 3, 3] + [6] * 256 + [1] * len(PIECES),
               scores=[0.0] * 259 + [-float(rank) for rank in range(len(PIECES))])


def by_the_rule(text: str) -> list[str]:
    """Of all neighbours whose joined text is a piece, join those of the best score, the leftmost first; repeat."""
    symbols = list(("▁" + text).replace(" ", "▁")) if text else []
    while True:
        pairs = [(PIECES.index(a + b), at) for at, (a, b) in enumerate(zip(symbols, symbols[1:])) if a + b in PIECES]
        if not pairs:
            break
        _, at = min(pairs)
        symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]
    return [piece for symbol in symbols
            for piece in ([symbol] if symbol in PIECES else [f"<0x{byte:02X}>" for byte in symbol.encode()])]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("spm")
    return Tokenizer(convert(write(directory / "m.gguf", **OPTIONS), directory / "out"))


@settings(max_examples=300)
@given(st.text("theranins  é🙂\n", max_size=24))
def test_pieces_are_joined_by_score(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert [TOKENS[id] for id in ids] == by_the_rule(text)
    assert tokenizer.decode(ids) == text


def test_bos_is_prepended_and_bytes_stand_for_unknown_characters(tokenizer):
    assert [TOKENS[id] for id in tokenizer.encode("there☃")] == ["<s>", "▁there", "<0xE2>", "<0x98>", "<0x83>"]


def test_the_leading_space_is_left_out_if_the_file_says_so(tmp_path):
    extra = {"tokenizer.ggml.add_space_prefix": False}
    tokenizer = Tokenizer(convert(write(tmp_path / "m.gguf", **OPTIONS, extra=extra), tmp_path / "out"))
    ids = tokenizer.encode("the a", add_special_tokens=False)
    assert [TOKENS[id] for id in ids] == ["the", "▁a"]
    assert tokenizer.decode(ids) == "the a" and tokenizer.decode(tokenizer.encode(" the")) == " the"


@pytest.mark.parametrize("change, found", [
    (dict(extra={"tokenizer.ggml.remove_extra_whitespaces": True}), "remove_extra_whitespaces' is set"),
    (dict(scores=[0.0]), r"\d+ tokens but 1 scores"),
    (dict(tokens=[*TOKENS[:3], "xyz", *TOKENS[4:]]), "1 byte tokens are missing, such as <0x00>"),
    (dict(scores=None, merges=["x y"]), "'tokenizer.ggml.scores' is missing"),
])
def test_what_the_rule_does_not_cover_is_refused(tmp_path, change, found):
    with pytest.raises(CheckpointError, match=found):
        convert(write(tmp_path / "m.gguf", **(OPTIONS | change)), tmp_path / "out")
