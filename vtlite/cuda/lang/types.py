"""Types of kernel parameters and values: casts, storage types, pointers, tensor maps.

The casts f32, u32, i32, i64, u64 are NumPy's scalar types in Python and conversions on the GPU. A value of a storage type
(bf16, f16, e4m3, e5m2) is read from memory as its bit pattern, u16 or u8, in both lives; lang.arithmetic converts it.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

f32, f64 = np.float32, np.float64
u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i8, i16, i32, i64 = np.int8, np.int16, np.int32, np.int64
f16, bf16 = np.float16, ml_dtypes.bfloat16
e4m3, e5m2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2

READ_AS = {np.dtype(f16): np.dtype(u16), np.dtype(bf16): np.dtype(u16),
           np.dtype(e4m3): np.dtype(u8), np.dtype(e5m2): np.dtype(u8)}


@dataclass(frozen=True)
class Pointer:
    """Type of a parameter that points to elements of `dtype` in device memory; made by `ptr(dtype)`."""

    dtype: np.dtype


def ptr(dtype) -> Pointer:
    return Pointer(np.dtype(dtype))


tensor_map = object()               # type of a parameter that takes a vtlite.cuda.tensor_map.TensorMap, for tensor_copy


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: name and type, written once in @kernel(...)."""

    name: str
    dtype: np.dtype                 # of the scalar, or of the elements pointed to; of a tensor map u8
    is_pointer: bool
    is_tensor_map: bool = False

    @classmethod
    def of(cls, name: str, kind) -> "Parameter":
        """From a name and what a signature says of it: ptr(dtype), tensor_map or a scalar type."""
        if kind is tensor_map:
            return cls(name, np.dtype(u8), False, True)
        return cls(name, kind.dtype, True) if isinstance(kind, Pointer) else cls(name, np.dtype(kind), False)

    @property
    def read_as(self) -> np.dtype:
        """Of a pointer: what p[i] is in a kernel, the dtype itself or the unsigned integer with its bits."""
        return READ_AS.get(self.dtype, self.dtype)

    @property
    def text(self) -> str:
        if self.is_tensor_map:
            return f"{self.name}: tensor_map"
        return f"{self.name}: ptr({self.dtype.name})" if self.is_pointer else f"{self.name}: {self.dtype.name}"
