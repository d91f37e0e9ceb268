"""Loaded kernels, launches whose arguments are packed once, and graphs of launches."""

import ctypes
from functools import cached_property

import numpy as np

from vtlite.cuda.cubin_cache import Entry
from vtlite.cuda.device_array import DeviceArray
from vtlite.cuda.driver import check, cu
from vtlite.cuda.kernel import Specialized
from vtlite.cuda.staging import Region
from vtlite.cuda.tensor_map import ENCODED_BYTES, TensorMap
from vtlite.errors import DeviceError

FREE_SHARED_MEMORY = 48 << 10           # static and dynamic together; more needs the function's permission


class _EncodedMap(ctypes.Structure):
    """The slot of a tensor map, with the face of the other slots."""

    _fields_ = [("value", ctypes.c_uint8 * ENCODED_BYTES)]


class LoadedKernel:
    """A kernel's cubin in a device's context."""

    def __init__(self, specialized: Specialized, entry: Entry):
        self.specialized, self.entry = specialized, entry
        self._image = ctypes.create_string_buffer(entry.cubin, len(entry.cubin))
        self._module = check(cu.cuModuleLoadData(ctypes.addressof(self._image)), f"loading {specialized.name}")
        self.function = check(cu.cuModuleGetFunction(self._module, entry.name.encode()), f"finding {entry.name}")
        self._allowed = FREE_SHARED_MEMORY - entry.figures["shared_bytes"]
        self.allow_shared(specialized.shared)

    def allow_shared(self, nbytes: int) -> None:
        """Permit launches with so much dynamic shared memory."""
        if nbytes > self._allowed:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cu.cuFuncSetAttribute(self.function, attribute, nbytes), f"{self.specialized.name}: {nbytes} bytes of shared memory")
            self._allowed = nbytes

    @cached_property
    def slots(self) -> list:
        """Per parameter: its name, its ctypes type, and the NumPy type that a scalar goes through."""
        return [(p, _EncodedMap if p.is_tensor_map else ctypes.c_uint64 if p.is_pointer else np.ctypeslib.as_ctypes_type(p.dtype))
                for p in self.specialized.signature]


class PreparedLaunch:
    """A launch with its arguments packed: run() costs one driver call. It keeps the arrays alive."""

    __slots__ = ("_arguments", "_call", "_keep", "_kernel", "_pointers", "_values")

    def __init__(self, kernel: LoadedKernel, stream, grid, arguments, shared: int | None):
        name, slots = kernel.specialized.name, kernel.slots
        if len(arguments) != len(slots):
            raise DeviceError(f"{name} takes {len(slots)} arguments, found {len(arguments)}: "
                              f"({', '.join(parameter.text for parameter, _ in slots)})")
        shared = kernel.specialized.shared if shared is None else shared
        kernel.allow_shared(shared)
        self._kernel, self._keep = kernel, list(arguments)
        self._values = [kind(_packed(name, parameter, value)) for (parameter, kind), value in zip(slots, arguments, strict=True)]
        self._pointers = (ctypes.c_void_p * max(len(slots), 1))(*(ctypes.addressof(value) for value in self._values))
        grid = (grid, 1, 1) if isinstance(grid, int) else (*grid, 1, 1)[:3]
        self._call = (kernel.function, *grid, kernel.specialized.threads, 1, 1, shared, stream, ctypes.addressof(self._pointers), 0)

    def run(self) -> None:
        """Queue the launch; one without blocks does nothing."""
        if 0 in self._call[1:4]:
            return
        status = cu.cuLaunchKernel(*self._call)[0]
        if status != cu.CUresult.CUDA_SUCCESS:
            check((status,), f"launching {self._kernel.specialized.name} on a grid of {self._call[1:4]}")

    def set(self, name: str, value) -> None:
        """Replace one argument for the runs to come."""
        for i, (parameter, _) in enumerate(self._kernel.slots):
            if parameter.name == name:
                self._values[i].value = _packed(self._kernel.specialized.name, parameter, value)
                self._keep[i] = value
                return
        raise DeviceError(f"{self._kernel.specialized.name} has no parameter {name!r}")


def _packed(kernel: str, parameter, value):
    """What goes into a parameter's slot: an address, a scalar of the right type and range, or an encoded tensor map."""
    if parameter.is_tensor_map:
        if not isinstance(value, TensorMap):
            raise DeviceError(f"{kernel}: {parameter.text} takes a TensorMap, found {type(value).__name__}")
        return (ctypes.c_uint8 * ENCODED_BYTES).from_buffer_copy(value.encoded)
    if not parameter.is_pointer:
        try:
            return np.dtype(parameter.dtype).type(value).item()
        except (OverflowError, TypeError, ValueError) as error:
            raise DeviceError(f"{kernel}: {parameter.text} cannot be {value!r} ({error})") from error
    if not isinstance(value, DeviceArray) or value.dtype != parameter.dtype:
        found = value if isinstance(value, DeviceArray) else type(value).__name__
        raise DeviceError(f"{kernel}: {parameter.text} takes a device array of {parameter.dtype}, found {found}")
    return value.address


class Graph:
    """Work captured from a stream, replayed with one call. It keeps the memory that its launches refer to, but for temporaries
    of a step: the arena keeps that, and gives it to others between two replays."""

    def __init__(self, stream):
        self._stream = stream
        self._memory: dict[int, object] = {}
        self._executable = None

    def keep(self, arguments) -> None:
        """Hold on to what the arguments of a launch refer to."""
        arrays = (argument.array if isinstance(argument, TensorMap) else argument for argument in arguments)
        owners = (array.owner for array in arrays if isinstance(array, DeviceArray))
        self._memory.update((id(owner), owner) for owner in owners if not isinstance(owner, Region))

    def begin(self) -> None:
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED       # others may allocate meanwhile
        check(cu.cuStreamBeginCapture(self._stream, mode), "starting a graph")

    def end(self) -> None:
        graph = check(cu.cuStreamEndCapture(self._stream), "ending a graph")
        self._executable = check(cu.cuGraphInstantiate(graph, 0), "instantiating a graph")
        check(cu.cuGraphDestroy(graph))

    def abandon(self) -> None:
        """End a capture that failed, so that the stream can be used again."""
        status, graph = cu.cuStreamEndCapture(self._stream)
        if status == cu.CUresult.CUDA_SUCCESS and int(graph):
            check(cu.cuGraphDestroy(graph))

    def replay(self) -> None:
        """Queue the captured work on the stream."""
        check(cu.cuGraphLaunch(self._executable, self._stream), "replaying a graph")

    def __del__(self):
        if self._executable is not None:
            cu.cuGraphExecDestroy(self._executable)
