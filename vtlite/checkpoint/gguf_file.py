"""The GGUF format: metadata and tensors of one file, every length checked before it is believed.

Layout, little-endian: "GGUF", u32 version, u64 tensor count, u64 metadata count, the metadata, the tensors'
names, shapes, types and offsets, padding, data. A string is a u64 length and UTF-8 bytes.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Block types are decoded by the `gguf` package;
its own reader makes several NumPy arrays per token of a vocabulary and trusts lengths, so it is not used.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vtlite.strict_json import quote
from vtlite.errors import CheckpointError

VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
U32, U64 = "<I", "<Q"
ROWS_AT_ONCE = 1 << 24   # elements decoded together, so that float32 copies stay at 64 MB


def import_gguf():
    """The `gguf` package, which knows the block formats; CheckpointError with the next action if it is absent."""
    try:
        import gguf
    except ImportError:
        raise CheckpointError('importing a GGUF needs the gguf package: pip install "vtlite[gguf]"') from None
    return gguf


@dataclass(frozen=True)
class GGUFTensor:
    shape: tuple[int, ...]   # slowest dimension first, as NumPy has it; the file lists them the other way round
    type: Any                # gguf.GGMLQuantizationType
    start: int               # bytes from the start of the file
    row_bytes: int           # bytes of one row, that is of shape[-1] elements


class GGUFFile:
    """One GGUF file, mapped read-only: `metadata` (key -> Python value) and `tensors` (name -> GGUFTensor).

    CheckpointError if it is not a GGUF of a known version, is truncated, or has lengths that cannot be.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._gguf = import_gguf()
        try:
            with open(self.path, "rb") as file:
                if file.read(4) != b"GGUF":
                    raise CheckpointError(f"{self.path}: does not start with 'GGUF', so it is not a GGUF file")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be read ({error.strerror})") from None
        self._at = 4
        version = self._scalar(U32)
        if version not in VERSIONS:
            raise CheckpointError(f"{self.path}: GGUF version {version} is not one of {VERSIONS} (little-endian)")
        tensor_count, metadata_count = self._scalar(U64), self._scalar(U64)
        self.metadata: dict[str, Any] = {}
        for _ in range(metadata_count):   # a lying count runs into the end of the file
            key = self._string()
            if key in self.metadata:
                raise CheckpointError(f"{self.path}: metadata key {quote(key)} appears twice")
            self.metadata[key] = self._value(key, self._scalar(U32))
        self.tensors: dict[str, GGUFTensor] = {}
        self._read_tensor_table(tensor_count)

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Metadata `key` checked to be a `kind`; CheckpointError if it is another, or absent without a default."""
        value = self.metadata.get(key, default)
        if value is None:
            raise CheckpointError(f"{self.path}: metadata key '{key}' is missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise CheckpointError(f"{self.path}: metadata key '{key}' should be {kind.__name__}, found {quote(value)}")
        return value

    def dequantize(self, name: str, dtype: np.dtype) -> np.ndarray:
        """The tensor `name` in `dtype`: decoded to float32 in pieces of at most 64 MB, then rounded once."""
        tensor = self.tensors[name]
        rows = math.prod(tensor.shape[:-1])
        packed = np.frombuffer(self._map, np.uint8, rows * tensor.row_bytes, tensor.start).reshape(rows, -1)
        array = np.empty((rows, tensor.shape[-1]), dtype)
        step = max(1, ROWS_AT_ONCE // tensor.shape[-1])
        for row in range(0, rows, step):
            array[row:row + step] = self._gguf.quants.dequantize(packed[row:row + step], tensor.type)
        return array.reshape(tensor.shape)

    def _read_tensor_table(self, count: int) -> None:
        offsets = {}
        for _ in range(count):
            name = self._string()
            if name in self.tensors:
                raise CheckpointError(f"{self.path}: tensor {quote(name)} appears twice")
            dims = self._scalar(U32)
            if not 1 <= dims <= 4:
                raise CheckpointError(f"{self.path}: tensor {quote(name)}: expected 1 to 4 dimensions, found {dims}")
            shape = tuple(reversed([self._scalar(U64) for _ in range(dims)]))
            kind, row_bytes = self._block_type(name, self._scalar(U32), shape)
            offsets[name] = self._scalar(U64)
            self.tensors[name] = GGUFTensor(shape, kind, 0, row_bytes)
        alignment = self.get("general.alignment", int, 32)
        if alignment < 1:
            raise CheckpointError(f"{self.path}: general.alignment should be at least 1, found {alignment}")
        data_start = -(-self._at // alignment) * alignment
        for name, offset in offsets.items():
            tensor = self.tensors[name]
            start = data_start + offset
            end = start + math.prod(tensor.shape[:-1]) * tensor.row_bytes
            if end > len(self._map):
                raise CheckpointError(f"{self.path}: truncated: tensor {quote(name)} ends at byte {end}, "
                                      f"the file at {len(self._map)}; download it again")
            self.tensors[name] = GGUFTensor(tensor.shape, tensor.type, start, tensor.row_bytes)

    def _block_type(self, name: str, code: int, shape: tuple[int, ...]) -> tuple[Any, int]:
        """The ggml type with number `code` and the bytes that one row of `shape` takes in it."""
        gguf = self._gguf
        try:
            kind = gguf.GGMLQuantizationType(code)
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            gguf.quants.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
        except (ValueError, NotImplementedError):
            raise CheckpointError(f"{self.path}: tensor {quote(name)} has ggml type {code}, which the gguf package "
                                  "cannot decode to floats") from None
        if 0 in shape or shape[-1] % block:
            raise CheckpointError(f"{self.path}: tensor {quote(name)}: rows of shape {list(shape)} are not whole blocks "
                                  f"of {block} {kind.name} elements")
        return kind, shape[-1] // block * block_bytes

    def _bytes(self, count: int) -> bytes:
        if count > len(self._map) - self._at:
            raise CheckpointError(f"{self.path}: truncated: {count} bytes are announced at byte {self._at}, "
                                  f"the file ends at {len(self._map)}")
        self._at += count
        return self._map[self._at - count:self._at]

    def _scalar(self, code: str) -> Any:
        return struct.unpack(code, self._bytes(struct.calcsize(code)))[0]

    def _string(self) -> str:
        start = self._at
        try:
            return self._bytes(self._scalar(U64)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path}: the string at byte {start} is not UTF-8 ({error.reason})") from None

    def _value(self, key: str, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind in SCALARS:
            return self._scalar(SCALARS[kind])
        if kind != ARRAY:
            raise CheckpointError(f"{self.path}: metadata key {quote(key)} has type {kind}, which GGUF does not define")
        item, length = self._scalar(U32), self._scalar(U64)
        if item == STRING:
            return [self._string() for _ in range(length)]
        if item in SCALARS:
            dtype = np.dtype(SCALARS[item])
            return np.frombuffer(self._bytes(length * dtype.itemsize), dtype).tolist()
        raise CheckpointError(f"{self.path}: metadata key {quote(key)} is an array of type {item}; expected numbers or "
                              "strings")
