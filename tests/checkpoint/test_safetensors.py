"""vtlite/checkpoint/safetensors.py: what is read is what was written, without a copy; everything else is refused."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings, strategies as st

from vtlite.checkpoint.safetensors import DTYPES, SafetensorsFile, write_safetensors
from vtlite.errors import CheckpointError

BF16 = np.dtype(ml_dtypes.bfloat16)


def raw_file(path, header: dict | bytes, data: bytes = b"", length: int | None = None):
    """A file with exactly this header and these data bytes, lies included."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(begin=0, end=8, dtype="F32", shape=(2,)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_every_dtype_survives_the_round_trip(tmp_path):
    arrays = {name: np.arange(6).reshape(2, 3).astype(dtype) for name, dtype in DTYPES.items()}
    layout = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    write_safetensors(tmp_path / "x.safetensors", layout, arrays.values(), {"format": "pt"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.names == list(DTYPES)
    for name, array in arrays.items():
        read = file.tensor(name)
        assert read.dtype == array.dtype and read.shape == file.shape(name) == (2, 3)
        assert read.tobytes() == array.tobytes()


def test_reads_what_the_safetensors_library_writes_and_the_library_reads_ours(tmp_path):
    arrays = {"a": np.arange(5, dtype=np.float32), "b.c": np.ones((2, 0, 3), np.float16), "d": np.array(7, np.int64)}
    safetensors.numpy.save_file(arrays, tmp_path / "theirs.safetensors", {"format": "np"})
    theirs = SafetensorsFile(tmp_path / "theirs.safetensors")
    write_safetensors(tmp_path / "ours.safetensors", {n: (a.dtype, a.shape) for n, a in arrays.items()}, arrays.values())
    ours = safetensors.numpy.load_file(tmp_path / "ours.safetensors")
    for name, array in arrays.items():
        np.testing.assert_array_equal(theirs.tensor(name), array)
        np.testing.assert_array_equal(ours[name], array)


def test_a_bfloat16_tensor_is_a_view_of_the_mapped_file(tmp_path):
    values = np.arange(64, dtype=np.float32).astype(BF16)
    write_safetensors(tmp_path / "x.safetensors", {"w": (BF16, (8, 8))}, [values.reshape(8, 8)])
    file = SafetensorsFile(tmp_path / "x.safetensors")
    first, second = file.tensor("w"), file.tensor("w")
    assert np.shares_memory(first, second) and np.shares_memory(first, np.frombuffer(file._map, np.uint8))
    assert not first.flags.owndata and not first.flags.writeable and first.flags.aligned
    with pytest.raises(ValueError):
        first[0, 0] = 1


def test_a_tensor_at_an_odd_offset_is_read_right(tmp_path):
    values = np.array([1.5, -2.0], np.float32)
    header = {"pad": entry(0, 1, "U8", (1,)), "w": entry(1, 9)}
    file = SafetensorsFile(raw_file(tmp_path / "x", header, b"\x01" + values.tobytes()))
    read = file.tensor("w")
    np.testing.assert_array_equal(read, values)
    assert read.flags.aligned and not read.flags.writeable


@pytest.mark.parametrize("header, data, found", [
    ({"w": entry()}, b"", "truncated: needs bytes up to 8 after the header, the file has 0"),
    ({"w": entry()}, bytes(7), "truncated: needs bytes up to 8"),
    ({"w": entry()}, bytes(9), "has 9 bytes there"),
    ({"w": entry(), "v": entry(4, 12)}, bytes(12), r"data_offsets \[4, 12\] overlap tensor 'w', which ends at 8"),
    ({"w": entry(), "v": entry()}, bytes(8), "overlap"),
    ({"w": entry(), "v": entry(9, 17)}, bytes(17), "allows no gaps"),
    ({"w": entry(shape=(3,))}, bytes(8), r"F32 of shape \[3\] takes 12 bytes, but data_offsets \[0, 8\] span 8"),
    ({"w": entry(dtype="F4")}, bytes(8), "unknown dtype 'F4'; known: BF16"),
    ({"w": entry(dtype=["F32"])}, bytes(8), "unknown dtype"),
    ({"w": entry(shape=(-2,))}, bytes(8), "shape should be a list"),
    ({"w": entry(shape=(True, 2))}, bytes(8), "shape should be a list"),
    ({"w": entry(shape=(1,) * 33)}, bytes(8), "at most 32 sizes"),
    ({"w": entry(0, 0, shape=(0, 2**62))}, b"", "larger than any file"),
    ({"w": entry(8, 0)}, bytes(8), r"data_offsets should be \[begin, end\], found \[8, 0\]"),
    ({"w": {"dtype": "F32", "shape": [2]}}, bytes(8), "expected dtype, shape and data_offsets"),
    ({"w": 3}, b"", "expected dtype, shape and data_offsets, found 3"),
    ({"__metadata__": {"a": 1}}, b"", "__metadata__ should map strings to strings"),
    (b'{"w": {}, "w": {}}', b"", "key 'w' appears twice"),
    (b'{"w": {"dtype": "F32", "dtype": "F32"}}', b"", "key 'dtype' appears twice"),
    (b"[]", b"", "expected a JSON object, found list"),
    (b'{"w": NaN}', b"", "NaN is not a JSON number"),
    (b"\xff\xfe{}", b"", "not valid JSON"),
    (b'{"w":' + b"[" * 100_000, b"", "nested too deeply"),
])
def test_a_lying_header_is_refused_by_name(tmp_path, header, data, found):
    path = raw_file(tmp_path / "x.safetensors", header, data)
    with pytest.raises(CheckpointError, match=found) as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize("content, found", [
    (b"", "truncated: 0 bytes"),
    (b"\x01\x00\x00", "truncated: 3 bytes"),
    ((100).to_bytes(8, "little") + b"{}", "should end at byte 108, the file ends at byte 10"),
    ((2**63).to_bytes(8, "little") + b"{}", "above the limit of 100000000"),
])
def test_a_truncated_file_is_refused(tmp_path, content, found):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CheckpointError, match=found):
        SafetensorsFile(tmp_path / "x")


def test_a_missing_file_and_a_missing_tensor_are_named(tmp_path):
    with pytest.raises(CheckpointError, match="nothere.*cannot be read"):
        SafetensorsFile(tmp_path / "nothere")
    file = SafetensorsFile(raw_file(tmp_path / "x", {"w": entry()}, bytes(8)))
    with pytest.raises(CheckpointError, match="no tensor 'v'"):
        file.tensor("v")


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                    max_leaves=6)
SIZES = st.lists(st.integers(-2, 2**64), max_size=4)
ENTRIES = st.fixed_dictionaries({"dtype": st.sampled_from([*DTYPES, "F4"]) | JSON, "shape": SIZES | JSON,
                                 "data_offsets": SIZES | JSON})


@settings(max_examples=150)
@given(header=st.dictionaries(st.text(max_size=4), ENTRIES | JSON, max_size=3), data=st.binary(max_size=16),
       length=st.none() | st.integers(0, 2**64 - 1))
def test_any_header_is_read_or_refused(tmp_path_factory, header, data, length):
    path = raw_file(tmp_path_factory.mktemp("any") / "x", header, data, length)
    try:
        file = SafetensorsFile(path)
    except CheckpointError:
        return
    for name in file.names:
        assert file.tensor(name).shape == file.shape(name)


@settings(max_examples=150)
@given(st.data())
def test_a_file_with_any_bytes_changed_is_read_or_refused(tmp_path_factory, data):
    path = raw_file(tmp_path_factory.mktemp("bytes") / "x", {"w": entry(), "v": entry(8, 14, "BF16", (3, 1))}, bytes(14))
    content = bytearray(path.read_bytes())
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
        content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content[:data.draw(st.integers(0, len(content)))])
    try:
        file = SafetensorsFile(path)
    except CheckpointError:
        return
    for name in file.names:
        assert file.tensor(name).shape == file.shape(name)
