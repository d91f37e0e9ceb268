"""vtlite/checkpoint/tokenizer.py: ids, text and bytes agree, whatever the ids."""

import json

import pytest
import tokenizers
from hypothesis import given, strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from vtlite.checkpoint.tokenizer import BYTE_OF, Tokenizer
from vtlite.errors import CheckpointError, RequestError

NAMES = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "add_bos_token": False}


def save(directory, backend, names=NAMES):
    backend.add_special_tokens(["<s>", "</s>"])
    backend.add_tokens([AddedToken("<think>", special=False)])
    backend.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    return directory


def byte_level():
    vocabulary = {character: id for id, character in enumerate(BYTE_OF)} | {"th": 256, "the": 257, "Ġthe": 258}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [("t", "h"), ("th", "e"), ("Ġ", "the")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return backend


def sentencepiece():
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a", "é"]
    backend = tokenizers.Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, [("▁", "a")],
                                              unk_token="<unk>", byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                         decoders.Strip(" ", 1, 0)])
    return backend


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer(save(tmp_path_factory.mktemp("byte_level"), byte_level()))


@pytest.fixture(scope="module")
def spm(tmp_path_factory):
    return Tokenizer(save(tmp_path_factory.mktemp("spm"), sentencepiece()))


def test_special_tokens_are_named_and_known(tokenizer):
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "</s>", None)
    assert tokenizer.vocab_size == 262 and tokenizer.eos_token_id == 260
    assert [tokenizer.is_special(id) for id in (258, 259, 260, 261, 999)] == [False, True, True, False, False]


def test_control_tokens_in_a_text_become_those_tokens_and_are_skipped_on_the_way_back(tokenizer):
    ids = tokenizer.encode("<s> the<think></s>")
    assert ids == [259, 258, 261, 260]
    assert tokenizer.decode(ids) == " the<think>"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<s> the<think></s>"


@given(st.text(max_size=20))
def test_any_text_comes_back_and_its_token_bytes_are_its_utf8(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


@given(st.lists(st.integers(-2, 300), max_size=8))
def test_any_ids_decode_to_their_joined_bytes(tokenizer, ids):
    joined = b"".join(map(tokenizer.token_bytes, ids))
    assert tokenizer.decode(ids, skip_special_tokens=False) == joined.decode("utf-8", errors="replace")


@given(st.text("aé ☃🙂", max_size=12))
def test_byte_fallback_tokens_are_single_bytes(spm, text):
    ids = spm.encode(text)
    assert b"".join(map(spm.token_bytes, ids)).decode().removeprefix(" ") == spm.decode(ids)
    snow = spm.encode("☃", add_special_tokens=False)[1:]
    assert [spm.token_bytes(id) for id in snow] == [b"\xe2", b"\x98", b"\x83"]


def test_the_text_of_one_token_keeps_its_space_and_shows_half_a_character(tokenizer, spm):
    assert tokenizer.token_text(258) == " the"
    assert spm.token_text(spm.backend.token_to_id("▁a")) == " a"
    assert tokenizer.token_text(tokenizer.encode("é")[0]) == "\ufffd"


@pytest.mark.parametrize("id", [-1, 262, 151_935, 2**32, 2**70])
def test_ids_outside_the_vocabulary_are_nothing(tokenizer, id):
    assert tokenizer.decode([258, id, 258]) == " the the"
    assert tokenizer.token_text(id) == "" and tokenizer.token_bytes(id) == b""


def test_a_lone_surrogate_is_the_request_s_fault(tokenizer):
    with pytest.raises(RequestError, match=r"lone surrogate U\+D83D at character 2"):
        tokenizer.encode("ab\ud83dcd")


def test_truncation_and_padding_stored_in_the_file_are_off(tmp_path):
    backend = byte_level()
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    assert len(Tokenizer(save(tmp_path, backend)).encode("xyz")) == 3


def test_a_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="no tokenizer.json"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"version": "1.0", "model": {"type": "BPE"}}', "\xff"])
def test_a_broken_tokenizer_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content, encoding="latin-1")
    with pytest.raises(CheckpointError, match="tokenizer.json: the tokenizers package cannot read it"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize("names, found", [
    ({"eos_token": "<nope>"}, "eos_token '<nope>' of tokenizer_config.json is not one of its 262 tokens"),
    ({"bos_token": 3}, "'bos_token' should be a token, found 3"),
    ([], "expected a JSON object, found list"),
])
def test_wrong_names_of_special_tokens_are_refused(tmp_path, names, found):
    with pytest.raises(CheckpointError, match=found):
        Tokenizer(save(tmp_path, byte_level(), names))


def test_tokenizer_config_may_be_absent(tmp_path):
    save(tmp_path, byte_level())
    (tmp_path / "tokenizer_config.json").unlink()
    assert Tokenizer(tmp_path).eos_token_id is None
