"""Runs a kernel on the CPU, thread by thread, as a GPU would be allowed to run it.

Every CUDA thread is a greenlet that runs the kernel's own Python function until it must wait for others. Blocks run one
after another. By default threads take turns in ascending order; with a seed, blocks and threads are taken in a random
order, which brings out results that depend on luck. `print` and `pdb` work in a kernel as anywhere.

    launch(function, grid=4, threads=128, arguments=(Pointer(...), np.int32(5)))

What a GPU leaves undefined is reported as a `KernelFault`: out-of-bounds or misaligned accesses, reads of unwritten
memory, data races, barriers and warp operations that not all threads reach.
"""

import random
from collections import defaultdict, deque
from itertools import product
from types import FunctionType
from typing import NamedTuple

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

from vtlite.cuda.emulated_atomics import Atomics
from vtlite.cuda.emulated_barriers import Barriers
from vtlite.cuda.emulated_copies import Copies, TransactionBarriers, WarpgroupProducts
from vtlite.cuda.emulated_faults import Divergence, KernelFault, here, ranges, site_of, thread_name
from vtlite.cuda.emulated_memory import LocalArray, Pointer
from vtlite.cuda.emulated_order import Knowledge, Ordered
from vtlite.cuda.emulated_shared import SharedAccess, SharedMemory
from vtlite.cuda.emulated_warp import WARP_SIZE, WarpOperations
from vtlite.errors import DeviceError


class Dim3(NamedTuple):
    """Three extents or coordinates, int32 as in CUDA."""

    x: np.int32
    y: np.int32
    z: np.int32

    @classmethod
    def of(cls, value) -> "Dim3":
        """From an int or a tuple of up to three."""
        values = (value,) if np.ndim(value) == 0 else tuple(value)
        return cls(*(np.int32(v) for v in (*values, 1, 1)[:3]))

    def indices(self) -> list["Dim3"]:
        """Every coordinate below these extents, x running fastest."""
        x, y, z = ([np.int32(i) for i in range(extent)] for extent in self)
        return [Dim3(i, j, k) for k, j, i in product(z, y, x)]


def current() -> "Thread":
    """The emulated thread that is running."""
    thread = getcurrent()
    if not isinstance(thread, Thread):
        raise DeviceError("this means something only inside a kernel: launch the kernel on a device "
                          "(VTLITE_DEVICE=emulator runs it without a GPU)")
    return thread


class Launch:
    """One run of a kernel over a grid.

    `seed` None runs in ascending order; `races` False leaves out the race record, for whole models.
    """

    def __init__(self, function: FunctionType, name: str, grid: Dim3, threads: Dim3, arguments: tuple,
                 shared: int, seed: int | None, races: bool):
        self.function, self.name, self.grid, self.threads, self.arguments = function, name, grid, threads, arguments
        self.thread_indices = threads.indices()
        self.shared, self.races = shared, races
        self.random = None if seed is None else random.Random(seed)

    def run(self) -> None:
        blocks = self.grid.indices()
        if self.random:
            self.random.shuffle(blocks)
        for index in blocks:
            Block(self, index).run()


def launch(function: FunctionType, grid, threads, arguments: tuple, *, name: str | None = None, shared: int = 0,
           seed: int | None = None, races: bool = True) -> None:
    """Run `function` once per thread of `grid` blocks of `threads`, with `shared` bytes of dynamic shared memory."""
    Launch(function, name or function.__name__, Dim3.of(grid), Dim3.of(threads), arguments, shared, seed, races).run()


class Block:
    """The threads of one block, who of them can run, and their shared memory."""

    def __init__(self, launch: Launch, index: Dim3):
        self.launch, self.index = launch, index
        self.shared = SharedMemory(launch.shared)
        self.meeting, self.warp_meetings = None, defaultdict(list)
        self.named_barriers, self.mbarriers = {}, {}
        nothing = Knowledge(self, len(launch.thread_indices))
        self.threads = [Thread(self, index, i, nothing) for i, index in enumerate(launch.thread_indices)]
        self.unstarted = list(reversed(self.threads))
        if launch.random:
            launch.random.shuffle(self.unstarted)
        self.ready, self.polling = deque(), []                  # paused threads that can go on; (thread, condition)

    def run(self) -> None:
        """Run every thread to its end."""
        try:
            while (runner := self.next_ready() or (self.unstarted.pop() if self.unstarted else None)) is not None:
                runner.switch()
            if waiting := [thread for thread in self.threads if not thread.dead]:
                waiting[0].throw(_Stuck)                    # `Thread.pause` turns it into a report
        finally:
            for thread in self.threads:
                if not thread.dead:
                    thread.throw(GreenletExit)

    def next_ready(self) -> "Thread | None":
        """Takes the next paused thread to run: the first that can, or a random one.

        Only `run` starts threads: started from within another thread, they would nest their stacks.
        """
        if not self.ready and self.polling:
            met = [(thread, condition) for thread, condition in self.polling if condition()]
            self.polling = [pair for pair in self.polling if pair not in met]
            self.ready.extend(thread for thread, _ in met)
        if not self.ready:
            return None
        if self.launch.random:
            self.ready.rotate(self.launch.random.randrange(len(self.ready)))
        return self.ready.popleft()

    def describe_waiting(self) -> str:
        """Who waits where, and who has returned."""
        places: dict[str, list[int]] = {}
        for thread in self.threads:
            place = "have returned" if thread.dead else f"wait at {thread.waits_at[0]} {site_of(thread.waits_at[1])}"
            places.setdefault(place, []).append(thread.index)
        return "; ".join(f"threads {ranges(indices)} {place}" for place, indices in places.items())


class _Stuck(BaseException):
    """Thrown into a waiting thread when none can go on."""


class Thread(greenlet, Ordered, Barriers, WarpOperations, SharedAccess, Copies, TransactionBarriers, WarpgroupProducts,
             Atomics):
    """One CUDA thread. Its methods are the meaning of `vtlite.cuda.lang`'s primitives."""

    def __init__(self, block: Block, thread_index: Dim3, index: int, knowledge: Knowledge):
        greenlet.__init__(self)
        launch = block.launch
        self.launch, self.block, self.index, self.tracks_races = launch, block, index, launch.races
        self.threadIdx, self.blockIdx, self.blockDim, self.gridDim = thread_index, block.index, launch.threads, launch.grid
        self.lane, self.warp = index % WARP_SIZE, index // WARP_SIZE
        self.laneid, self.warpid = np.int32(self.lane), np.int32(self.warp)
        self.waits_at, self.result = None, None
        self.start_clock(knowledge)
        self.start_copies()
        self.start_products()

    def run(self) -> None:
        launch = self.launch
        try:
            with np.errstate(all="ignore"):
                launch.function(*launch.arguments)
        except KernelFault:
            raise
        except Exception as error:
            error.add_note(f"in kernel {launch.name}, {thread_name(self)}")
            raise
        self.leave()

    def pause(self, operation: str, place: tuple | None = None):
        """Let others run until `resume` is called on this thread; returns what it was given."""
        self.waits_at = operation, place or here()
        other = self.block.next_ready() or self.parent
        if other is not self:
            try:
                other.switch()
            except _Stuck:
                raise Divergence(f"no thread can go on: {self.block.describe_waiting()}") from None
        self.waits_at = None
        return self.result

    def resume(self, result=None) -> None:
        """Mark a paused thread as able to run; its `pause` returns `result`."""
        self.result = result
        self.block.ready.append(self)

    def wait_until(self, condition, what: str) -> None:
        """Pause until condition() is true. It is asked again when no thread can run."""
        while not condition():
            self.block.polling.append((self, condition))
            self.pause(what)

    load, store = staticmethod(Pointer.load), staticmethod(Pointer.store)

    def local_array(self, shape, dtype) -> LocalArray:
        return LocalArray("local array", dtype, tuple(np.atleast_1d(shape).tolist()))
