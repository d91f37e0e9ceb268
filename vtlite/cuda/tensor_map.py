"""TensorMap: a matrix in device memory as the boxes that lang.tensor_copy takes to shared memory.

    tiles = TensorMap(x, box=(64, 64), swizzled=True)              # x [rows, columns] bf16 on the device
    device.launch(kernel.specialize(), grid, tiles, y)             # the kernel's parameter has the type tensor_map

A box has its rows one after another; in the 128-byte swizzle, as wgmma reads it, the 16-byte chunk c of row r is at chunk
c ^ (r & 7). What a box has outside the matrix is zero. On a GPU the map becomes 128 bytes among the kernel's parameters
(CUDA: CUtensorMap, cuTensorMapEncodeTiled), made once; the emulator takes it as it is.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vtlite.errors import DeviceError

ENCODED_BYTES = 128
SWIZZLED_ROW = 128               # bytes
MOST_BOX = 256                   # rows or columns
LONGEST_STRIDE = 1 << 40         # bytes from one row to the next
DATA_TYPES = {"bfloat16": "BFLOAT16", "float16": "FLOAT16", "float32": "FLOAT32", "uint32": "UINT32", "int32": "INT32", "uint16": "UINT16",
              "uint8": "UINT8", "float8_e4m3fn": "UINT8", "float8_e5m2": "UINT8"}


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A matrix [rows, columns] on a device, rows any multiple of 16 bytes apart; `box` is (rows, columns) of one copy."""

    array: Any
    box: tuple[int, int]
    swizzled: bool = False

    def __post_init__(self):
        array, (box_rows, box_columns) = self.array, self.box
        itemsize, row = array.dtype.itemsize, box_columns * array.dtype.itemsize
        if array.ndim != 2 or array.dtype.name not in DATA_TYPES or array.strides[1] != itemsize:
            raise DeviceError(f"a tensor map takes a matrix with contiguous rows of {', '.join(DATA_TYPES)}; found {array} with strides "
                              f"{list(array.strides)}")
        if array.size == 0 or array.address % 16 or array.strides[0] % 16 or array.strides[0] >= LONGEST_STRIDE:
            raise DeviceError(f"a tensor map takes rows that begin at multiples of 16 bytes; those of {array} are {array.strides[0]} bytes "
                              f"apart and begin {array.address % 16} bytes past one")
        if not 0 < box_rows <= MOST_BOX or not 0 < box_columns <= MOST_BOX or row % 16:
            raise DeviceError(f"a box has 1 to {MOST_BOX} rows and columns, and rows of a multiple of 16 bytes; found {self.box} of {array.dtype}")
        if self.swizzled and row != SWIZZLED_ROW:
            raise DeviceError(f"the rows of a swizzled box have {SWIZZLED_ROW} bytes; those of {self.box} of {array.dtype} have {row}: "
                              f"take {SWIZZLED_ROW // itemsize} columns")

    @property
    def nbytes(self) -> int:
        """Of a box, those outside the matrix included: what the mbarrier must expect."""
        return self.box[0] * self.box[1] * self.array.dtype.itemsize

    @property
    def alignment(self) -> int:
        """Of a box in shared memory."""
        return 1024 if self.swizzled else 128

    def inside(self, row: int, column: int) -> tuple[range, range]:
        """The rows and the columns of the matrix that the box from (row, column) on covers."""
        return tuple(range(max(0, min(first, size)), max(0, min(first + length, size)))
                     for first, length, size in zip((row, column), self.box, self.array.shape))

    def arrange(self, row: int, column: int, part: np.ndarray) -> np.ndarray:
        """The bytes of the box from (row, column) on, as they lie in shared memory; `part` is what `inside` covers."""
        rows, columns = self.inside(row, column)
        box = np.zeros(self.box, self.array.dtype)
        if len(rows) and len(columns):
            box[rows.start - row : rows.stop - row, columns.start - column : columns.stop - column] = part
        chunks = box.view(np.uint8).reshape(self.box[0], -1, 16)
        if self.swizzled:
            r, c = np.arange(self.box[0])[:, None], np.arange(SWIZZLED_ROW // 16)[None]
            chunks = chunks[r, c ^ (r & 7)]                       # the exchange is its own inverse
        return chunks.reshape(-1)

    @cached_property
    def encoded(self) -> bytes:
        """The CUtensorMap."""
        import ctypes

        from vtlite.cuda.driver import check, cu
        (rows, columns), data_type = self.array.shape, getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{DATA_TYPES[self.array.dtype.name]}")
        swizzle = cu.CUtensorMapSwizzle
        made = check(cu.cuTensorMapEncodeTiled(
            data_type, 2, self.array.address, [cu.cuuint64_t(columns), cu.cuuint64_t(rows)], [cu.cuuint64_t(self.array.strides[0])],
            [cu.cuuint32_t(self.box[1]), cu.cuuint32_t(self.box[0])], [cu.cuuint32_t(1)] * 2,
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle.CU_TENSOR_MAP_SWIZZLE_128B if self.swizzled else swizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE), f"making a tensor map of {self.array}")
        return ctypes.string_at(int(made.getPtr()), ENCODED_BYTES)
