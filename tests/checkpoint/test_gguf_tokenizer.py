"""vtlite/checkpoint/gguf_tokenizer.py: each named pre-tokenizer splits as its model was trained, and text comes back."""

import pytest
from hypothesis import given, strategies as st

from tests.tiny_gguf import CONTROL, MERGES, TOKENS, TYPES, write
from vtlite.checkpoint.gguf import convert
from vtlite.checkpoint.gguf_tokenizer import PRE_TOKENIZERS
from vtlite.checkpoint.tokenizer import Tokenizer


@pytest.fixture(scope="module", params=PRE_TOKENIZERS)
def tokenizer(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    return Tokenizer(convert(write(directory / "m.gguf", pre=request.param), directory / "out"))


def pieces(tmp_path, pre, text):
    """What the pre-tokenizer makes of `text`, in plain characters."""
    backend = Tokenizer(convert(write(tmp_path / "m.gguf", pre=pre), tmp_path / "out")).backend
    return [text[start:end] for _, (start, end) in backend.pre_tokenizer.pre_tokenize_str(text)]


@given(st.text(max_size=30))
def test_any_text_comes_back(tokenizer, text):
    if tokenizer.backend.normalizer is not None:
        text = tokenizer.backend.normalizer.normalize_str(text)
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False).removeprefix(
        tokenizer.bos_token if tokenizer.encode("") else "") == text


@pytest.mark.parametrize("text", ["12345 and 6", "  two  spaces\n\n\ttab", "🙂👩‍👧 漢字 é", "def f(x):\n    return x**2", ""])
def test_digits_spaces_emoji_and_code_come_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_ids_are_those_of_the_file(tokenizer):
    assert tokenizer.vocab_size == len(TOKENS)
    assert [tokenizer.backend.id_to_token(id) for id in range(len(TOKENS))] == TOKENS
    assert [id for id in range(len(TOKENS)) if tokenizer.is_special(id)] == [0, 1, 2]


def test_control_tokens_are_single_ids_and_user_defined_ones_are_kept_in_the_answer(tokenizer):
    ids = tokenizer.encode("".join(CONTROL) + "<think>", add_special_tokens=False)
    assert ids == [0, 1, 2, len(TOKENS) - 1]
    assert tokenizer.decode(ids) == "<think>"


@pytest.mark.parametrize("pre, expected", [
    ("gpt-2", ["x", " 1234", "'s", " ab", "!!", "\n  ", " y"]),
    ("smollm", ["x", " ", "1", "2", "3", "4", "'s", " ab", "!!", "\n  ", " y"]),
    ("qwen2", ["x", " ", "1", "2", "3", "4", "'s", " ab", "!!\n", "  ", " y"]),
    ("llama-bpe", ["x", " ", "123", "4", "'s", " ab", "!!\n", "  ", " y"]),
])
def test_text_is_split_where_the_model_s_training_split_it(tmp_path, pre, expected):
    assert pieces(tmp_path, pre, "x 1234's ab!!\n   y") == expected


def test_only_llama_bpe_prepends_bos_unless_the_file_says_otherwise(tmp_path):
    def first(name, **options):
        return Tokenizer(convert(write(tmp_path / f"{name}.gguf", **options), tmp_path / name)).encode("the")

    the = TOKENS.index("the")
    assert first("a", pre="llama-bpe") == [1, the]
    assert first("b", pre="smollm") == [the]
    assert first("c", pre="llama-bpe", extra={"tokenizer.ggml.add_bos_token": False}) == [the]
    assert first("d", pre="smollm", extra={"tokenizer.ggml.add_bos_token": True}) == [1, the]


def test_qwen2_composes_characters(tmp_path):
    tokenizer = Tokenizer(convert(write(tmp_path / "m.gguf", pre="qwen2"), tmp_path / "out"))
    assert tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9")


def test_unused_rows_of_the_embedding_have_no_token(tmp_path):
    types = [*TYPES[:-2], 5, 5]
    tokenizer = Tokenizer(convert(write(tmp_path / "m.gguf", tokens=[*TOKENS[:-2], "[PAD1]", "[PAD1]"], types=types,
                                        merges=MERGES[:-1]), tmp_path / "out"))
    assert tokenizer.vocab_size == len(TOKENS) - 2
    assert tokenizer.decode([len(TOKENS) - 1]) == ""
