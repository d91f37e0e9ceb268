"""DeviceArray: shape, dtype and strides over memory of a GPU, exchanged with torch, cupy and others without a copy.

`torch.from_dlpack(x)` and `cupy.asarray(x)` take one as it is; `device.from_dlpack(tensor)` takes theirs. bf16 and fp8 are
ml_dtypes' types on the host and DLPack's on the device.
"""

import math

import numpy as np

from vtlite.cuda import dlpack
from vtlite.cuda.driver import check, cu
from vtlite.cuda.layout import splits_rows
from vtlite.errors import DeviceError


class Memory:
    """A block of device memory, freed when nobody refers to it any more."""

    def __init__(self, nbytes: int):
        self.nbytes = nbytes
        self.address = int(check(cu.cuMemAlloc(max(nbytes, 1)), f"allocating {nbytes / 2**20:.1f} MiB"))

    def __del__(self):
        if getattr(self, "address", 0):
            cu.cuMemFree(self.address)          # the status does not matter: at exit the context may be gone


class DeviceArray:
    """Elements of `dtype` at `address`; `strides` count bytes, as NumPy's do. `owner` keeps the memory alive."""

    __slots__ = ("address", "device", "dtype", "owner", "shape", "strides")

    def __init__(self, device, owner, address: int, shape: tuple[int, ...], dtype, strides: tuple[int, ...] | None = None):
        self.device, self.owner, self.address = device, owner, address
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.strides = contiguous_strides(shape, self.dtype.itemsize) if strides is None else strides

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        expected = contiguous_strides(self.shape, self.dtype.itemsize)
        return all(n == 1 or have == want for n, have, want in zip(self.shape, self.strides, expected, strict=True))

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray {self.dtype}{list(self.shape)}"

    def numpy(self) -> np.ndarray:
        """A copy on the host, once all work queued so far is done."""
        if self.is_contiguous:
            host = np.empty(self.shape, self.dtype)
            self.device.download(host, self.address)
            return host
        span = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)) + self.dtype.itemsize
        raw = np.empty(span, np.uint8)
        self.device.download(raw, self.address)
        return np.ndarray(self.shape, self.dtype, raw, strides=self.strides).copy()

    def copy_from(self, array: "np.ndarray | DeviceArray") -> None:
        """Take over the values of an array of this shape and dtype, on the host or here; ordered with the work on the stream."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise DeviceError(f"an array {array.dtype}{list(array.shape)} cannot be copied into {self}: shape and dtype must be equal")
        self._need_contiguous("copied into")
        if isinstance(array, DeviceArray):
            array._need_contiguous("copied from")
            check(cu.cuMemcpyDtoDAsync(self.address, array.address, self.nbytes, self.device.stream))
        else:
            self.device.upload(self.address, np.ascontiguousarray(array))

    def fill(self, byte: int) -> None:
        """Set every byte; ordered with the work on the stream."""
        self._need_contiguous("filled")
        if self.nbytes:
            check(cu.cuMemsetD8Async(self.address, byte, self.nbytes, self.device.stream))

    def view(self, dtype) -> "DeviceArray":
        """The same bytes as another dtype; the last axis changes its length."""
        dtype = np.dtype(dtype)
        if dtype.itemsize == self.dtype.itemsize:
            return DeviceArray(self.device, self.owner, self.address, self.shape, dtype, self.strides)
        self._need_contiguous(f"viewed as {dtype}")
        row = self.shape[-1] * self.dtype.itemsize
        if row % dtype.itemsize:
            raise DeviceError(f"{self} cannot be viewed as {dtype}: its rows have {row} bytes, not a multiple of {dtype.itemsize}")
        return DeviceArray(self.device, self.owner, self.address, (*self.shape[:-1], row // dtype.itemsize), dtype)

    def reshape(self, *shape: int) -> "DeviceArray":
        """The same elements in another shape, one length of which may be -1. Rows with gaps between them can be split."""
        if shape.count(-1) == 1:
            known = math.prod(n for n in shape if n != -1)
            shape = tuple(self.size // max(known, 1) if n == -1 else n for n in shape)
        if math.prod(shape) != self.size:
            raise DeviceError(f"{self} has {self.size} elements; shape {list(shape)} has {math.prod(shape)}")
        strides = contiguous_strides(shape, self.dtype.itemsize)
        if splits_rows(self, shape):
            strides = (self.strides[0], *strides[1:])
        else:
            self._need_contiguous("reshaped")
        return DeviceArray(self.device, self.owner, self.address, shape, self.dtype, strides)

    def __getitem__(self, key) -> "DeviceArray":
        """Integers and slices (with a positive step), as in NumPy; a view."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.ndim:
            raise IndexError(f"{self} has {self.ndim} axes, {len(keys)} indices were given")
        address, shape, strides = self.address, [], []
        for axis, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            index = keys[axis] if axis < len(keys) else slice(None)
            if isinstance(index, slice):
                start, stop, step = index.indices(n)
                if step < 1:
                    raise IndexError(f"{self}: the step of a slice must be positive, found {step}")
                address += start * stride
                shape.append(max(0, -(-(stop - start) // step)))
                strides.append(stride * step)
            else:
                if not -n <= index < n:
                    raise IndexError(f"{self}: index {index} of axis {axis}, which has {n}")
                address += index % n * stride
        return DeviceArray(self.device, self.owner, address, tuple(shape), self.dtype, tuple(strides))

    @property
    def __cuda_array_interface__(self) -> dict:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3,
                "strides": None if self.is_contiguous else self.strides, "stream": int(self.device.stream) or None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device.ordinal

    def __dlpack__(self, *, stream: int | None = None, max_version=None, dl_device=None, copy: bool | None = None):
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"{self} is handed over where it lies; copies to other devices are not made")
        if stream != dlpack.NO_SYNCHRONIZATION:
            self.device.let_stream_wait(stream)
        return dlpack.export(self)

    def _need_contiguous(self, verb: str) -> None:
        if not self.is_contiguous:
            raise DeviceError(f"{self} with strides {list(self.strides)} is not contiguous and cannot be {verb}")


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a C-ordered array."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def from_dlpack(device, source) -> DeviceArray:
    """An array over the memory of anything with __dlpack__ or __cuda_array_interface__ on this device; no copy is made."""
    if hasattr(source, "__dlpack__"):
        where = tuple(int(x) for x in source.__dlpack_device__())
        if where != (dlpack.CUDA, device.ordinal):
            raise DeviceError(f"the array is on device {where[1]} of kind {where[0]}, expected a CUDA array on device {device.ordinal}")
        return dlpack.take(device, source.__dlpack__(stream=int(device.stream)))
    interface = getattr(source, "__cuda_array_interface__", None)
    if interface is None:
        raise DeviceError(f"a {type(source).__name__} has neither __dlpack__ nor __cuda_array_interface__")
    if stream := interface.get("stream"):
        device.wait_for_stream(stream)
    strides = interface.get("strides")
    return DeviceArray(device, source, interface["data"][0], tuple(interface["shape"]), np.dtype(interface["typestr"]),
                       None if strides is None else tuple(strides))
