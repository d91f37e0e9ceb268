"""The running thread: indices, barriers, shared and local arrays, as numba-cuda names them.

`cuda` here is a stand-in that asks the emulator; the compiler puts numba-cuda-mlir's own `cuda` in its place. The same
goes for `consteval`, which unrolls loops and fixes values at compile time and is the identity in Python.
"""

from functools import cache

from vtlite.cuda.lang.primitive import primitive
from vtlite.cuda.lang.types import i32


def current():
    """The emulated thread that is running: every primitive with an effect is one of its methods."""
    return _emulator().current()


@cache
def _emulator():
    from vtlite.cuda import emulator        # late: the emulator needs greenlet, compiling does not
    return emulator


class _Space:
    """cuda.shared and cuda.local: shape must be a literal or a constant, shape 0 of shared is the dynamic region."""

    def __init__(self, method: str):
        self._method = method

    def array(self, shape, dtype):
        return getattr(current(), self._method)(shape, dtype)


class Cuda:
    """What a kernel reaches as `cuda`."""

    shared, local = _Space("shared_array"), _Space("local_array")
    threadIdx = property(lambda self: current().threadIdx)
    blockIdx = property(lambda self: current().blockIdx)
    blockDim = property(lambda self: current().blockDim)
    gridDim = property(lambda self: current().gridDim)
    laneid = property(lambda self: current().laneid)

    def syncthreads(self) -> None:
        """Barrier of all threads of the block (bar.sync 0)."""
        current().syncthreads()

    def syncthreads_count(self, predicate):
        """Barrier; then the number of threads whose predicate holds."""
        return current().syncthreads_count(predicate)

    def syncthreads_and(self, predicate):
        """Barrier; then whether the predicate holds in all threads."""
        return current().syncthreads_and(predicate)

    def syncthreads_or(self, predicate):
        """Barrier; then whether the predicate holds in any thread."""
        return current().syncthreads_or(predicate)

    def syncwarp(self, mask=0xFFFFFFFF) -> None:
        """Barrier of a warp's lanes, with memory ordering among them (bar.warp.sync)."""
        current().syncwarp(mask)

    def threadfence(self) -> None:
        """Earlier writes of this thread are seen by every thread before later ones (membar.gl)."""
        current().threadfence()


cuda = Cuda()


def consteval(value):
    """A compile-time value: `for i in consteval(range(4))` is unrolled. The identity in Python."""
    return value


@primitive("bar.sync $barrier, $threads;", inputs="uu")
def named_barrier_sync(barrier, threads):
    """Wait until `threads` threads (a multiple of 32) have reached or arrived at barrier 1..15 (CUDA: bar.sync id, n)."""
    current().named_barrier(barrier, threads)


@primitive("bar.arrive $barrier, $threads;", inputs="uu")
def named_barrier_arrive(barrier, threads):
    """Be counted at a barrier without waiting (CUDA: bar.arrive id, n)."""
    current().named_barrier(barrier, threads, arrive_only=True)


@primitive("mov.u32 $0, %laneid;", outputs="i", pure=True)
def lane_id():
    """This thread's lane of its warp, i32 0..31 (CUDA: %laneid)."""
    return i32(current().laneid)
