"""The safetensors format: a strict memory-mapped reader, and a writer that streams.

A file is a little-endian u64 N, N bytes of JSON, then the tensors' bytes with nothing between or after them:
    {"__metadata__": {str: str}, NAME: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
Offsets count from the end of the header. The format: https://huggingface.co/docs/safetensors
"""

import json
import math
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from vtlite.strict_json import parse_object, quote
from vtlite.errors import CheckpointError

DTYPES = {
    "BF16": np.dtype(ml_dtypes.bfloat16), "F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn), "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "U8": np.dtype("u1"), "I8": np.dtype("i1"), "I16": np.dtype("<i2"), "I32": np.dtype("<i4"), "I64": np.dtype("<i8"),
    "BOOL": np.dtype("?"),
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_HEADER_BYTES = 100_000_000
MAX_DIMS = 32
PIECE_BYTES = 32 << 20


@dataclass(frozen=True)
class TensorEntry:
    """One line of the header; `begin` and `end` are offsets in bytes from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """One .safetensors file, mapped read-only. The header is checked whole before any tensor is handed out.

    CheckpointError if the file is not exactly what the format says: nothing missing, overlapping or left over.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self._size = file.seek(0, 2)
                file.seek(0)
                self._entries, self._data_start = self._read_header(file)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be read ({error.strerror})") from None

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def dtype(self, name: str) -> str:
        """The dtype as the format spells it, such as "BF16"."""
        return self._entry(name).dtype

    def tensor(self, name: str) -> np.ndarray:
        """Read-only array on the mapped file. Only a tensor at an offset its dtype cannot be aligned to is copied."""
        entry = self._entry(name)
        dtype = DTYPES[entry.dtype]
        start = self._data_start + entry.begin
        count = (entry.end - entry.begin) // dtype.itemsize
        array = np.frombuffer(self._map, dtype, count, start) if count else np.empty(0, dtype)
        array = np.require(array.reshape(entry.shape), requirements="A")
        array.flags.writeable = False
        return array

    def num_bytes(self, name: str) -> int:
        entry = self._entry(name)
        return entry.end - entry.begin

    def pieces(self, name: str) -> Iterator[np.ndarray]:
        """The tensor cut along its first axis into parts of about PIECE_BYTES, to be read one after another: the pages of
        one leave this process's memory when the next is asked for."""
        tensor, start = self.tensor(name), self._data_start + self._entry(name).begin
        row_bytes = tensor[:1].nbytes
        rows = max(1, PIECE_BYTES // max(row_bytes, 1))
        for first in range(0, len(tensor), rows):
            yield tensor[first : first + rows]
            if hasattr(mmap, "MADV_DONTNEED"):
                begin = start + first * row_bytes
                aligned = begin - begin % mmap.PAGESIZE
                length = min(begin + rows * row_bytes, self._size) - aligned
                self._map.madvise(mmap.MADV_DONTNEED, aligned, length)

    def _entry(self, name: str) -> TensorEntry:
        if name not in self._entries:
            raise CheckpointError(f"{self.path}: no tensor {name!r}; the file holds {len(self._entries)} others")
        return self._entries[name]

    def _read_header(self, file) -> tuple[dict[str, TensorEntry], int]:
        if self._size < 8:
            raise CheckpointError(f"{self.path}: truncated: {self._size} bytes, but a safetensors file starts with 8 "
                                  "bytes of header length")
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise CheckpointError(f"{self.path}: header length {length} is above the limit of {MAX_HEADER_BYTES}; "
                                  "this is not a safetensors file")
        data_start = 8 + length
        if data_start > self._size:
            raise CheckpointError(f"{self.path}: truncated: the header should end at byte {data_start}, "
                                  f"the file ends at byte {self._size}")
        header = parse_object(file.read(length), f"{self.path}: header")
        self._check_metadata(header.pop("__metadata__", {}))
        entries = {name: self._parse_entry(name, value) for name, value in header.items()}
        self._check_tiling(entries, self._size - data_start)
        return entries, data_start

    def _check_metadata(self, metadata: object) -> None:
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise CheckpointError(f"{self.path}: __metadata__ should map strings to strings, found {quote(metadata)}")

    def _parse_entry(self, name: str, value: object) -> TensorEntry:
        where = f"{self.path}: tensor {quote(name)}"
        if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
            raise CheckpointError(f"{where}: expected dtype, shape and data_offsets, found {quote(value)}")
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise CheckpointError(f"{where}: unknown dtype {quote(dtype)}; known: {', '.join(DTYPES)}")
        if not _are_sizes(shape) or len(shape) > MAX_DIMS:
            raise CheckpointError(f"{where}: shape should be a list of at most {MAX_DIMS} sizes, found {quote(shape)}")
        if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise CheckpointError(f"{where}: data_offsets should be [begin, end], found {quote(offsets)}")
        itemsize = DTYPES[dtype].itemsize
        if math.prod(max(size, 1) for size in shape) * itemsize >= 2**63:
            raise CheckpointError(f"{where}: shape {quote(shape)} is larger than any file can hold")
        expected, found = math.prod(shape) * itemsize, offsets[1] - offsets[0]
        if expected != found:
            raise CheckpointError(f"{where}: {dtype} of shape {quote(shape)} takes {expected} bytes, "
                                  f"but data_offsets {quote(offsets)} span {found}")
        return TensorEntry(dtype, tuple(shape), *offsets)

    def _check_tiling(self, entries: dict[str, TensorEntry], data_bytes: int) -> None:
        """The tensors must cover the bytes after the header, in some order, exactly once."""
        covered, previous = 0, None
        for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
            where = f"{self.path}: tensor {quote(name)}"
            if entry.begin < covered:
                raise CheckpointError(f"{where}: data_offsets {[entry.begin, entry.end]} overlap tensor "
                                      f"{quote(previous)}, which ends at {covered}")
            if entry.begin > covered:
                raise CheckpointError(f"{where}: starts at {entry.begin}, but the tensor before it ends at {covered}; "
                                      "the format allows no gaps")
            if entry.end > data_bytes:
                raise CheckpointError(f"{where}: truncated: needs bytes up to {entry.end} after the header, "
                                      f"the file has {data_bytes}; download it again")
            covered, previous = entry.end, name
        if covered != data_bytes:
            raise CheckpointError(f"{self.path}: the tensors end at byte {covered} after the header, but the file has "
                                  f"{data_bytes} bytes there; something was appended or the header was changed")


def write_safetensors(path: Path, layout: dict[str, tuple[np.dtype, tuple[int, ...]]],
                      arrays: Iterable[np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Write tensors of the given dtypes and shapes, taking one array at a time, in the layout's order.

    The header needs only the layout, so `arrays` may be a generator and memory stays at one tensor.
    """
    header = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, (dtype, shape) in layout.items():
        begin, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        header[name] = {"dtype": DTYPE_NAMES[np.dtype(dtype)], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)   # data starts at a multiple of 64, so views of it are aligned
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array, (name, (dtype, shape)) in zip(arrays, layout.items(), strict=True):
            assert array.dtype == dtype and array.shape == tuple(shape), f"{name}: {array.dtype} {array.shape}"
            file.write(np.ascontiguousarray(array).view(np.uint8).data)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
