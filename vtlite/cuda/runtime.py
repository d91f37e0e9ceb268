"""GpuDevice: one GPU with its stream, memory, kernels and graphs. The face is vtlite/cuda/device.py's.

All work goes to one stream of the device's primary context, which torch and others in the process share; work of other
streams is ordered with it by events. Temporaries of a step come from an arena:

    with device.step():                 # empty() now hands out arena memory, and has it back from arrays that are dropped
        ...
    with device.capture() as graph: ...
    graph.replay()
"""

import contextlib
import os
from collections.abc import Callable

import numpy as np

from vtlite.cuda import cubin_cache, device_array
from vtlite.cuda.compiler import CHIPS
from vtlite.cuda.device_array import DeviceArray, Memory
from vtlite.cuda.driver import check, cu, initialise
from vtlite.cuda.kernel import Specialized
from vtlite.cuda.lang.primitive import chip_number
from vtlite.cuda.launch import Graph, LoadedKernel, PreparedLaunch
from vtlite.cuda.staging import Arena, Download, PinnedPool, PinnedRing
from vtlite.cuda.timeline import Timeline
from vtlite.errors import DeviceError


class GpuDevice:
    """An NVIDIA GPU. `ordinal` counts the devices that CUDA_VISIBLE_DEVICES leaves visible."""

    def __init__(self, ordinal: int = 0):
        self.driver_version = initialise()
        count = check(cu.cuDeviceGetCount())
        if not 0 <= ordinal < count:
            raise DeviceError(f"device {ordinal} was asked for, the driver shows {count}: set VTLITE_DEVICE to 0..{count - 1}, "
                              "or to emulator")
        self.ordinal = ordinal
        self._device = check(cu.cuDeviceGet(ordinal))
        self.name = check(cu.cuDeviceGetName(256, self._device)).split(b"\0")[0].decode().strip()
        self.compute_capability = (self._attribute("COMPUTE_CAPABILITY_MAJOR"), self._attribute("COMPUTE_CAPABILITY_MINOR"))
        self.chip = chip_for(*self.compute_capability)
        self.num_sms = self._attribute("MULTIPROCESSOR_COUNT")
        self._context = check(cu.cuDevicePrimaryCtxRetain(self._device), f"opening {self.name}")
        self.make_current()
        self.stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value), "creating a stream")
        self._kernels: dict[Specialized, LoadedKernel] = {}
        self._arena, self._in_step = Arena(), False
        self._use_arena = os.environ.get("VTLITE_NO_ARENA") != "1"      # compute-sanitizer sees arrays only if each is allocated
        self._ring: PinnedRing | None = None
        self._pool = PinnedPool()
        self._graph: Graph | None = None
        self._timeline: Timeline | None = None
        self.cublas = None
        self.faults = self.zeros((1,), np.uint32)

    def __repr__(self) -> str:
        return f"GpuDevice {self.ordinal} ({self.name}, {self.chip})"

    def _attribute(self, name: str) -> int:
        return check(cu.cuDeviceGetAttribute(getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), self._device))

    def make_current(self) -> None:
        """Let this thread use the device. The thread that opens it can already."""
        check(cu.cuCtxSetCurrent(self._context))

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""
        return check(cu.cuMemGetInfo())

    def synchronize(self) -> None:
        """Wait for all work queued on the stream; errors of kernels surface here."""
        check(cu.cuStreamSynchronize(self.stream), "running kernels")

    # arrays

    def empty(self, shape, dtype) -> DeviceArray:
        """An array with any contents; within step() a temporary of the step."""
        shape, dtype = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if self._in_step and self._use_arena:
            memory = self._arena.take(nbytes)
        else:
            memory = Memory(nbytes)
        return DeviceArray(self, memory, memory.address, shape, dtype)

    def zeros(self, shape, dtype) -> DeviceArray:
        array = self.empty(shape, dtype)
        array.fill(0)
        return array

    def array(self, values: np.ndarray) -> DeviceArray:
        """A copy of a host array."""
        array = self.empty(values.shape, values.dtype)
        array.copy_from(values)
        return array

    def from_dlpack(self, source) -> DeviceArray:
        """The memory of a torch, cupy or other CUDA array, without a copy."""
        return device_array.from_dlpack(self, source)

    def upload(self, address: int, values: np.ndarray) -> None:
        """Copy a contiguous host array to an address, through pinned memory; `values` may change at once."""
        if self._graph is not None:
            raise DeviceError("nothing can be uploaded while a graph is captured: make its inputs before, and upload into them")
        if values.nbytes:
            self._ring = self._ring or PinnedRing()
            self._ring.upload(address, values, self.stream)

    def download(self, host: np.ndarray, address: int) -> None:
        """Copy from an address into a contiguous host array, and wait."""
        if host.nbytes:
            check(cu.cuMemcpyDtoHAsync(host.ctypes.data, address, host.nbytes, self.stream), "downloading")
        self.synchronize()

    def start_download(self, array: DeviceArray) -> Download:
        """Queue the copy of a contiguous array to the host; wait() of what it gives returns its bytes."""
        return self._pool.download(array.address, array.nbytes, self.stream)

    @contextlib.contextmanager
    def step(self):
        """Arrays made inside are temporaries: their memory serves others when they are dropped, within the step or after it."""
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    @contextlib.contextmanager
    def lasting(self):
        """Arrays made inside outlive the step."""
        in_step, self._in_step = self._in_step, False
        try:
            yield
        finally:
            self._in_step = in_step

    # kernels

    def load(self, specialized: Specialized) -> LoadedKernel:
        """The kernel on this device; found or compiled at the first call."""
        kernel = self._kernels.get(specialized)
        if kernel is None:
            kernel = self._kernels[specialized] = LoadedKernel(specialized, cubin_cache.load(specialized, self.chip))
        return kernel

    def prepare(self, specialized: Specialized, grid, *arguments, shared: int | None = None) -> PreparedLaunch:
        """A launch to run() many times. `grid` is a number of blocks or a tuple; arrays and scalars follow the signature."""
        return PreparedLaunch(self.load(specialized), self.stream, grid, arguments, shared)

    def launch(self, specialized: Specialized, grid, *arguments, shared: int | None = None) -> None:
        """Queue one launch."""
        self.prepare(specialized, grid, *arguments, shared=shared).run()
        self._note(specialized.kernel.name, arguments)

    def run_library(self, name: str, call: Callable[[int], None], *arrays) -> None:
        """Let another library queue work: `call(stream)`, which refers to `arrays`."""
        call(int(self.stream))
        self._note(name, arrays)

    def _note(self, name: str, arguments) -> None:
        """Something was queued under this name."""
        if self._graph is not None:
            self._graph.keep(arguments)
        if self._timeline is not None:
            self._timeline.mark(name)

    @property
    def capturing(self) -> bool:
        return self._graph is not None

    @contextlib.contextmanager
    def capture(self):
        """Work queued inside is recorded in the Graph it gives, not run."""
        graph = self._graph = Graph(self.stream)
        graph.begin()
        try:
            yield graph
        except BaseException:
            graph.abandon()
            raise
        finally:
            self._graph = None
        graph.end()

    @contextlib.contextmanager
    def timeline(self):
        """The Timeline it gives times every launch made inside, in a graph at each replay."""
        self._timeline = Timeline(self.stream)
        try:
            yield self._timeline
        finally:
            self._timeline = None

    # other streams

    def let_stream_wait(self, stream: int | None) -> None:
        """Make another library's stream wait for what is queued here; None and 1 are the legacy default stream."""
        self._order(self.stream, cu.CUstream(stream or 1))

    def wait_for_stream(self, stream: int) -> None:
        """Make what is queued here from now on wait for another library's stream."""
        self._order(cu.CUstream(stream), self.stream)

    def _order(self, first, second) -> None:
        event = check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value))
        check(cu.cuEventRecord(event, first))
        check(cu.cuStreamWaitEvent(second, event, 0))
        check(cu.cuEventDestroy(event))         # the driver keeps it until it is done

    # timing

    def elapsed_us(self, work: Callable[[], None]) -> float:
        """Microseconds that the device takes for what `work` queues."""
        start, end = (check(cu.cuEventCreate(0)) for _ in range(2))
        check(cu.cuEventRecord(start, self.stream))
        work()
        check(cu.cuEventRecord(end, self.stream))
        check(cu.cuEventSynchronize(end), "running kernels")
        milliseconds = check(cu.cuEventElapsedTime(start, end))
        check(cu.cuEventDestroy(start))
        check(cu.cuEventDestroy(end))
        return milliseconds * 1e3


def chip_for(major: int, minor: int) -> str:
    """The chip to take cubins of for a compute capability: of the same major number, the newest that is not newer.

    A device runs cubins of its own major number and the same or a smaller minor one; sm_90a runs on 9.0 alone.
    """
    wanted = 10 * major + minor
    exact = [chip for chip in CHIPS if chip_number(chip) == wanted]
    older = [chip for chip in CHIPS if chip[-1].isdigit() and chip_number(chip) // 10 == major and chip_number(chip) < wanted]
    if not exact and not older:
        raise DeviceError(f"this GPU has compute capability {major}.{minor}; vtlite has kernels for {', '.join(CHIPS)} "
                          "and chips that run them: use another GPU, or the CPU")
    return max(exact or older, key=lambda chip: (chip_number(chip), chip))
