"""vtlite/checkpoint/gguf_file.py: reads what the gguf package writes; no file makes it hang, crash or guess."""

import builtins

import gguf
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.tiny_gguf import tensors, write
from vtlite.checkpoint import gguf_file
from vtlite.checkpoint.gguf import convert
from vtlite.checkpoint.gguf_file import GGUFFile
from vtlite.errors import CheckpointError


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A GGUF of some hundred bytes with every kind of metadata and two tensors."""
    path = tmp_path_factory.mktemp("small") / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_bool("b", True)
    writer.add_float64("f", 0.5)
    writer.add_array("ints", [1, -2])
    writer.add_array("strings", ["a", "é"])
    writer.add_tensor("v", np.arange(3, dtype=np.float16))
    writer.add_tensor("w", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors_are_what_was_written(small):
    file = GGUFFile(small)
    assert file.metadata == {"general.architecture": "llama", "b": True, "f": 0.5, "ints": [1, -2],
                             "strings": ["a", "é"]}
    assert {name: tensor.shape for name, tensor in file.tensors.items()} == {"v": (3,), "w": (2, 32)}
    np.testing.assert_array_equal(file.dequantize("v", np.float32), [0, 1, 2])
    np.testing.assert_array_equal(file.dequantize("w", np.float32), np.arange(64).reshape(2, 32))


def test_agrees_with_the_reader_of_the_gguf_package(tmp_path):
    path = write(tmp_path / "m.gguf", quantised=["blk.0.ffn_up.weight"])
    ours, theirs = GGUFFile(path), gguf.GGUFReader(path)
    assert ours.metadata == {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        np.testing.assert_array_equal(ours.dequantize(tensor.name, np.float32),
                                      gguf.quants.dequantize(tensor.data, tensor.tensor_type))


def test_decoding_in_pieces_gives_the_same_values(tmp_path, monkeypatch):
    path = write(tmp_path / "m.gguf", quantised=["token_embd.weight"])
    whole = GGUFFile(path).dequantize("token_embd.weight", np.float32)
    monkeypatch.setattr(gguf_file, "ROWS_AT_ONCE", 200)
    np.testing.assert_array_equal(GGUFFile(path).dequantize("token_embd.weight", np.float32), whole)
    assert np.abs(whole - tensors("llama")["token_embd.weight"]).max() < 0.05


@pytest.mark.parametrize("content, found", [
    (b"", "does not start with 'GGUF'"),
    (b"PK\x03\x04 a zip", "does not start with 'GGUF'"),
    (b"GGUF", "truncated: 4 bytes are announced at byte 4"),
    (b"GGUF" + (1).to_bytes(4, "little"), "GGUF version 1 is not one of"),
    (b"GGUF" + (3).to_bytes(4, "big"), "GGUF version 50331648 is not one of"),
    (b"GGUF\x03\0\0\0" + bytes(8) + (2**60).to_bytes(8, "little"), "truncated"),
    (b"GGUF\x03\0\0\0" + (2**60).to_bytes(8, "little") + bytes(8), "truncated"),
])
def test_what_is_not_a_gguf_is_refused(tmp_path, content, found):
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(CheckpointError, match=found):
        GGUFFile(tmp_path / "x.gguf")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="nothere.gguf: cannot be read"):
        GGUFFile(tmp_path / "nothere.gguf")


def test_every_truncation_is_refused(small, tmp_path):
    content = small.read_bytes()
    for end in range(len(content.rstrip(b"\0"))):
        (tmp_path / "x.gguf").write_bytes(content[:end])
        with pytest.raises(CheckpointError):
            GGUFFile(tmp_path / "x.gguf")


@settings(max_examples=200)
@given(st.data())
def test_any_bytes_changed_are_read_or_refused(small, tmp_path_factory, data):
    content = bytearray(small.read_bytes())
    at = data.draw(st.integers(4, len(content) - 8))
    content[at:at + 8] = data.draw(st.integers(0, 2**64 - 1) | st.integers(0, 300)).to_bytes(8, "little")
    path = tmp_path_factory.mktemp("any") / "x.gguf"
    path.write_bytes(content)
    try:
        file = GGUFFile(path)
    except CheckpointError:
        return
    for name, tensor in file.tensors.items():
        assert file.dequantize(name, np.float32).shape == tensor.shape


@settings(max_examples=60)
@given(st.data())
def test_an_import_of_any_changed_file_succeeds_or_is_refused(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("import")
    content = bytearray(write(directory / "m.gguf").read_bytes())
    header = content.index(b"tokenizer.ggml.tokens")   # settings of the model come before it
    at = data.draw(st.integers(4, header))
    content[at] = data.draw(st.integers(0, 255))
    (directory / "m.gguf").write_bytes(content)
    try:
        convert(directory / "m.gguf", directory / "out")
    except CheckpointError:
        assert not (directory / "out").exists()


def test_without_the_gguf_package_the_next_action_is_named(small, monkeypatch):
    real = builtins.__import__

    def without_gguf(name, *args, **kwargs):
        if name == "gguf":
            raise ImportError
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_gguf)
    with pytest.raises(CheckpointError, match=r'pip install "vtlite\[gguf\]"'):
        GGUFFile(small)
