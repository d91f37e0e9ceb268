"""The emulator with the face of a GPU: the same Device and DeviceArray as `vtlite.cuda.runtime`, on NumPy."""

import contextlib
import math
from functools import cache
from types import FunctionType

import numpy as np

from vtlite.cuda import emulator
from vtlite.cuda.binding import bind
from vtlite.cuda.emulated_arithmetic import FAST
from vtlite.cuda.emulated_memory import Allocation, Pointer
from vtlite.cuda.lang.types import READ_AS
from vtlite.cuda.layout import splits_rows
from vtlite.cuda.tensor_map import TensorMap
from vtlite.errors import DeviceError


MEMORY = 32 << 20


class DeviceArray:
    """An array in emulated global memory: `host` is its bytes as NumPy sees them, a view of `allocation.data`."""

    def __init__(self, allocation: Allocation, host: np.ndarray):
        self._allocation, self._host = allocation, host

    shape = property(lambda self: self._host.shape)
    strides = property(lambda self: self._host.strides)
    dtype = property(lambda self: self._host.dtype)
    size = property(lambda self: self._host.size)
    ndim = property(lambda self: self._host.ndim)
    nbytes = property(lambda self: self._host.nbytes)
    is_contiguous = property(lambda self: self._host.flags.c_contiguous)

    def __len__(self) -> int:
        return len(self._host)

    def __repr__(self) -> str:
        return f"DeviceArray {self.dtype}{list(self.shape)}"

    def numpy(self) -> np.ndarray:
        """A copy on the host; what no kernel has written is 0xFF."""
        return self._host.copy()

    def copy_from(self, array: "np.ndarray | DeviceArray") -> None:
        """Take over the values of an array of this shape and dtype, on the host or here."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise DeviceError(f"an array {array.dtype}{list(array.shape)} cannot be copied into {self}: "
                              "shape and dtype must be equal")
        self._need_contiguous("copied into")
        self._host[...] = array.numpy() if isinstance(array, DeviceArray) else array
        self._allocation.mark_written(self.address, self.nbytes)

    def fill(self, byte: int) -> None:
        """Set every byte."""
        self._need_contiguous("filled")
        self._allocation.data[self.address : self.address + self.nbytes] = byte
        self._allocation.mark_written(self.address, self.nbytes)

    def view(self, dtype) -> "DeviceArray":
        """The same bytes as another dtype; the last axis changes its length."""
        dtype, row = np.dtype(dtype), self.shape[-1] * self.dtype.itemsize
        if dtype.itemsize != self.dtype.itemsize:
            self._need_contiguous(f"viewed as {dtype}")
        if row % dtype.itemsize:
            raise DeviceError(f"{self} cannot be viewed as {dtype}: its rows have {row} bytes, not a multiple of "
                              f"{dtype.itemsize}")
        return DeviceArray(self._allocation, self._host.view(dtype))

    def reshape(self, *shape: int) -> "DeviceArray":
        """The same elements in another shape, one length of which may be -1. Rows with gaps between them can be split."""
        if not splits_rows(self, shape):
            self._need_contiguous("reshaped")
        return DeviceArray(self._allocation, self._host.reshape(*shape))

    def __getitem__(self, key) -> "DeviceArray":
        """Integers and slices (with a positive step), as in NumPy; a view."""
        keys = key if isinstance(key, tuple) else (key,)
        return DeviceArray(self._allocation, self._host[(*keys, ...)])

    def pointer(self, dtype) -> Pointer:
        """What a kernel gets for a parameter ptr(dtype). It may touch the bytes from the first element to the last."""
        span = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides)) + self.dtype.itemsize if self.size else 0
        return Pointer(self._allocation, dtype, self.address, self.address, self.address + span)

    @property
    def address(self) -> int:
        """The byte of its allocation where it begins; allocations are aligned."""
        return self._host.__array_interface__["data"][0] - self._allocation.data.__array_interface__["data"][0]

    def _need_contiguous(self, verb: str) -> None:
        if not self.is_contiguous:
            raise DeviceError(f"{self} with strides {list(self.strides)} is not contiguous and cannot be {verb}")


class Download:
    """Bytes that came to the host at once; on a GPU they would be on their way."""

    def __init__(self, array: DeviceArray):
        self._bytes = array.numpy().reshape(-1).view(np.uint8)

    def wait(self) -> np.ndarray:
        """The bytes [nbytes] u8."""
        return self._bytes


class PreparedLaunch:
    """A launch to run() many times."""

    def __init__(self, device: "EmulatedDevice", specialized, grid, arguments: tuple, shared: int | None):
        signature = specialized.signature
        if len(arguments) != len(signature):
            raise DeviceError(f"{specialized.name} takes {len(signature)} arguments, found {len(arguments)}: "
                              f"({', '.join(parameter.text for parameter in signature)})")
        self._device, self.specialized, self._grid = device, specialized, grid
        self._shared = specialized.shared if shared is None else shared
        self._arguments = [_argument(value, parameter, specialized.name) for value, parameter in zip(arguments, signature)]

    def run(self) -> None:
        emulator.launch(_python(self.specialized), self._grid, self.specialized.threads, tuple(self._arguments),
                        name=self.specialized.name, shared=self._shared, seed=self._device.seed, races=self._device.races)

    def set(self, name: str, value) -> None:
        """Replace one argument for the runs to come."""
        for i, parameter in enumerate(self.specialized.signature):
            if parameter.name == name:
                self._arguments[i] = _argument(value, parameter, self.specialized.name)
                return
        raise DeviceError(f"{self.specialized.name} has no parameter {name!r}")


class Graph:
    """Launches recorded once, run as often as wanted."""

    def __init__(self):
        self.launches: list[PreparedLaunch] = []

    def replay(self) -> None:
        for launch in self.launches:
            launch.run()


class EmulatedDevice:
    """A GPU made of NumPy and greenlets. `seed` and `races` as in `emulator.Launch`; tests switch races on."""

    name, chip = "emulator", "sm_90a"                # the chip whose tensor core it has
    num_sms = 132
    cublas = None
    capturing = property(lambda self: self._graph is not None)

    def __init__(self, seed: int | None = None, races: bool = False):
        self.seed, self.races = seed, races
        self._graph: Graph | None = None
        self._count = 0
        self.faults = self.zeros((1,), np.uint32)

    def make_current(self) -> None:
        """Any thread can use it."""

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes: what a test would want; the host has more."""
        return MEMORY, MEMORY

    def empty(self, shape, dtype) -> DeviceArray:
        """An array whose bytes count as never written."""
        return self._array(shape, dtype, None)

    def zeros(self, shape, dtype) -> DeviceArray:
        array = self.empty(shape, dtype)
        array.fill(0)
        return array

    def array(self, values: np.ndarray) -> DeviceArray:
        """A copy of a host array."""
        return self._array(values.shape, values.dtype, np.frombuffer(values.tobytes(), np.uint8).copy())

    def start_download(self, array: DeviceArray) -> Download:
        """The bytes of an array as they are now, for wait()."""
        return Download(array)

    def prepare(self, specialized, grid, *arguments, shared: int | None = None) -> PreparedLaunch:
        """A launch to run() many times. `grid` is a number of blocks or a tuple; arrays and scalars follow the signature."""
        return PreparedLaunch(self, specialized, grid, arguments, shared)

    def launch(self, specialized, grid, *arguments, shared: int | None = None) -> None:
        """Run a kernel now, or record it if a graph is being captured."""
        launch = self.prepare(specialized, grid, *arguments, shared=shared)
        if self._graph is None:
            launch.run()
        else:
            self._graph.launches.append(launch)

    def step(self):
        """Arrays made inside are temporaries of a step; here they are like all others."""
        return contextlib.nullcontext()

    def lasting(self):
        """Arrays made inside outlive the step, as all do here."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def capture(self):
        """Launches inside are recorded in the Graph it gives, not run."""
        self._graph = graph = Graph()
        try:
            yield graph
        finally:
            self._graph = None

    def synchronize(self) -> None:
        """Every launch has finished when it returns."""

    def _array(self, shape, dtype, data) -> DeviceArray:
        shape, dtype = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
        self._count += 1
        allocation = Allocation(f"array {self._count} ({dtype}{list(shape)})", math.prod(shape) * dtype.itemsize, data)
        return DeviceArray(allocation, allocation.data.view(dtype).reshape(shape))


@cache
def _python(specialized) -> FunctionType:
    """The kernel as Python, its constants in force, with the fast forms of scalar arithmetic."""
    return bind(specialized.kernel.function, specialized.constants,
                lambda value: FAST.get(value) if isinstance(value, FunctionType) else None)


def _argument(value, parameter, kernel: str):
    if parameter.is_tensor_map:
        if not isinstance(value, TensorMap):
            raise DeviceError(f"{kernel}: {parameter.text} takes a TensorMap, found {type(value).__name__}")
        return value
    if not parameter.is_pointer:
        return np.dtype(parameter.dtype).type(value)
    if not isinstance(value, DeviceArray) or value.dtype != parameter.dtype:
        raise DeviceError(f"{kernel}: {parameter.text} takes a device array of {parameter.dtype}, found "
                          f"{value if isinstance(value, DeviceArray) else type(value).__name__}")
    return value.pointer(READ_AS.get(parameter.dtype, parameter.dtype))
