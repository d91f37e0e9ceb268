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
from vtlite.errors import DeviceError


class DeviceArray:
    """A C-contiguous array in emulated global memory. Kernels may not touch a byte outside it."""

    def __init__(self, allocation: Allocation, offset: int, shape: tuple[int, ...], dtype):
        self._allocation, self._offset = allocation, offset
        self.shape, self.dtype = shape, np.dtype(dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def numpy(self) -> np.ndarray:
        """A copy on the host; what no kernel has written is 0xFF."""
        return self._host().copy()

    def copy_from(self, array: np.ndarray) -> None:
        """Take over the values of a host array of this shape and type."""
        if array.shape != self.shape or array.dtype != self.dtype:
            raise DeviceError(f"an array {array.dtype}{list(array.shape)} cannot be copied into {self}; shape and type should be equal")
        self._host()[...] = array
        self._allocation.mark_written(self._offset, self.nbytes)

    def fill(self, byte: int) -> None:
        """Set every byte."""
        self._allocation.data[self._offset : self._offset + self.nbytes] = byte
        self._allocation.mark_written(self._offset, self.nbytes)

    def view(self, dtype) -> "DeviceArray":
        """The same bytes as another type; the last axis changes length."""
        dtype = np.dtype(dtype)
        row = self.shape[-1] * self.dtype.itemsize
        if row % dtype.itemsize:
            raise DeviceError(f"{self} cannot be seen as {dtype}: its rows have {row} bytes, not a multiple of {dtype.itemsize}")
        return DeviceArray(self._allocation, self._offset, (*self.shape[:-1], row // dtype.itemsize), dtype)

    def reshape(self, *shape: int) -> "DeviceArray":
        """The same elements in another shape; one extent may be -1."""
        return DeviceArray(self._allocation, self._offset, np.empty(self.shape, np.bool_).reshape(*shape).shape, self.dtype)

    def __getitem__(self, rows: slice) -> "DeviceArray":
        """Rows of the first axis."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise DeviceError(f"{self}[{start}:{stop}:{step}] would not be contiguous; take the rows with a kernel")
        row = self.nbytes // max(len(self), 1)
        return DeviceArray(self._allocation, self._offset + start * row, (max(stop - start, 0), *self.shape[1:]), self.dtype)

    def __repr__(self) -> str:
        return f"DeviceArray {self.dtype}{list(self.shape)}"

    def pointer(self, dtype) -> Pointer:
        """What a kernel gets for a parameter ptr(dtype)."""
        return Pointer(self._allocation, dtype, self._offset, self._offset, self._offset + self.nbytes)

    def _host(self) -> np.ndarray:
        return self._allocation.data[self._offset : self._offset + self.nbytes].view(self.dtype).reshape(self.shape)


class Graph:
    """Launches recorded once, run as often as wanted."""

    def __init__(self):
        self.launches = []

    def replay(self) -> None:
        for run in self.launches:
            run()


class EmulatedDevice:
    """A GPU made of NumPy and greenlets. `seed` and `races` as in `emulator.Launch`; tests switch races on."""

    name, chip = "emulator", "sm_90a"                # the chip whose tensor core it has
    num_sms = 132

    def __init__(self, seed: int | None = None, races: bool = False):
        self.seed, self.races = seed, races
        self._graph: Graph | None = None
        self._count = 0

    def empty(self, shape, dtype) -> DeviceArray:
        """An array whose bytes count as never written."""
        return self._array(shape, dtype, None)

    def zeros(self, shape, dtype) -> DeviceArray:
        array = self.empty(shape, dtype)
        array.fill(0)
        return array

    def array(self, values: np.ndarray) -> DeviceArray:
        """A copy of a host array."""
        values = np.ascontiguousarray(values)
        return self._array(values.shape, values.dtype, values.reshape(-1).view(np.uint8).copy())

    def launch(self, specialized, grid, *arguments, shared: int | None = None) -> None:
        """Run a kernel now, or record it if a graph is being captured. Arguments follow the kernel's signature."""
        signature = specialized.signature
        if len(arguments) != len(signature):
            raise DeviceError(f"kernel {specialized.name} takes {len(signature)} arguments, found {len(arguments)}")
        arguments = tuple(_argument(value, parameter, specialized.name) for value, parameter in zip(arguments, signature))

        def run():
            emulator.launch(_python(specialized), grid, specialized.threads, arguments, name=specialized.name,
                            shared=specialized.shared if shared is None else shared, seed=self.seed, races=self.races)

        run() if self._graph is None else self._graph.launches.append(run)

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
        shape, dtype = tuple(np.atleast_1d(shape).tolist()), np.dtype(dtype)
        self._count += 1
        name = f"array {self._count} ({dtype}{list(shape)})"
        return DeviceArray(Allocation(name, math.prod(shape) * dtype.itemsize, data), 0, shape, dtype)


@cache
def _python(specialized) -> FunctionType:
    """The kernel as Python, its constants in force, with the fast forms of scalar arithmetic."""
    return bind(specialized.kernel.function, specialized.constants,
                lambda value: FAST.get(value) if isinstance(value, FunctionType) else None)


def _argument(value, parameter, kernel: str):
    if not parameter.is_pointer:
        return np.dtype(parameter.dtype).type(value)
    if not isinstance(value, DeviceArray) or value.dtype != parameter.dtype:
        raise DeviceError(f"{kernel}: {parameter.text} takes a device array of {parameter.dtype}, found "
                          f"{value if isinstance(value, DeviceArray) else type(value).__name__}")
    return value.pointer(READ_AS.get(parameter.dtype, parameter.dtype))
