"""Makes calls of compiled kernels, one after another, with the tasks of each shared out among threads.

Every thread that takes part walks the whole list. At each call it claims ranges of tasks until none is left, waits until
those that others claimed are done, and goes on: from one call to the next takes a tenth of a microsecond, because nobody
sleeps in between. A thread that comes late skips what was done without it, so a busy core slows a list down but never
stops it. Between lists the other threads look out for the next one for a few milliseconds, about the time between two
tokens, and then sleep.

A list of calls is an int64 array; each call in it: address of the kernel, tasks, tasks of one claim, number of slots, slots.
"""

import os
import platform
import threading
from functools import cache

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from vtlite.cpu import cores

ADDRESS, TASKS, CLAIM, NUM_SLOTS, SLOTS = range(5)                      # where a call has what
NEXT, DONE, LINE = 0, 1, 8                                              # counters of each call; 8 int64 fill a cache line
CALLS, SIZE, COUNTERS, OPEN, INSIDE, AWAKE = 0, 1, 2, LINE, 2 * LINE, 3 * LINE      # where the notice board has what
SPINS_BEFORE_YIELD, SPINS_BEFORE_SLEEP = 1000, 6000                     # some 30 us, some 2 ms

_board = np.zeros(4 * LINE, np.int64)           # addresses of the list that is being made, and who takes part
_in_use = threading.Lock()
_posted = threading.Condition()


def launch(calls: np.ndarray, num_calls: int, parallel: bool = True) -> None:
    """Make `num_calls` calls; if `parallel`, other threads help, unless they are at work for another caller."""
    counters = np.zeros(num_calls * LINE, np.int64)
    together = parallel and cores.num_threads() > 1 and _in_use.acquire(blocking=False)
    try:
        if together:
            _wake_workers()
        _make(calls, counters, _board, together)
    finally:
        if together:
            _in_use.release()


def _wake_workers() -> None:
    _start_workers()
    if _board[AWAKE] < cores.num_threads() - 1:
        with _posted:
            _posted.notify_all()


@cache
def _start_workers() -> None:
    for i in range(cores.num_threads() - 1):
        threading.Thread(target=_work_for_ever, name=f"vtlite-cpu-{i}", daemon=True).start()


def _start_afresh() -> None:
    """A forked process has the board, but none of the threads, and locks that a thread may have held."""
    global _in_use, _posted
    _board[:] = 0
    _in_use, _posted = threading.Lock(), threading.Condition()
    _start_workers.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)


def _work_for_ever() -> None:
    while True:
        _work_on(_board)
        with _posted:
            _posted.wait()


@njit(nogil=True, cache=True)
def _make(calls, counters, board, together):
    if together:
        board[CALLS], board[SIZE], board[COUNTERS] = calls.ctypes.data, calls.size, counters.ctypes.data
        _exchange(board, OPEN, 1)
    _take_part(calls, counters)
    if together:
        _exchange(board, OPEN, 0)
        spins = 0
        while _read(board, INSIDE):             # they may still look at the two arrays
            spins += 1
            _pause(spins > SPINS_BEFORE_YIELD)


@njit(nogil=True, cache=True)
def _work_on(board):
    """Take part in what the board shows, until nothing was shown for a while."""
    _add(board, AWAKE, 1)
    spins = 0
    while spins < SPINS_BEFORE_SLEEP:
        if _read(board, OPEN):
            _add(board, INSIDE, 1)
            if _read(board, OPEN):              # still: the caller will wait for this thread to leave
                _take_part(carray(_pointer(board[CALLS]), board[SIZE]), carray(_pointer(board[COUNTERS]), board[SIZE]))
                spins = 0
            _add(board, INSIDE, -1)
        spins += 1
        _pause(spins > SPINS_BEFORE_YIELD)
    _add(board, AWAKE, -1)


@njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
def _take_part(calls, counters):
    i = counter = 0
    while i < calls.size:
        tasks, claim = calls[i + TASKS], calls[i + CLAIM]
        first = _add(counters, counter + NEXT, claim)
        while first < tasks:
            last = first + claim if first + claim < tasks else tasks
            for task in range(first, last):
                _call(calls[i + ADDRESS], task, calls, i + SLOTS)
            _add(counters, counter + DONE, last - first)
            first = _add(counters, counter + NEXT, claim)
        spins = 0
        while _read(counters, counter + DONE) < tasks:
            spins += 1
            _pause(spins > SPINS_BEFORE_YIELD)
        i += SLOTS + calls[i + NUM_SLOTS]
        counter += LINE


@intrinsic
def _pointer(typingctx, address):
    """The address of int64 numbers."""
    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))
    return types.CPointer(types.int64)(types.int64), generate


@intrinsic
def _call(typingctx, address, task, calls, first_slot):
    """The kernel at `address` on `task` and the slots from calls[first_slot] on."""
    def generate(context, builder, signature, args):
        i64 = ir.IntType(64)
        kernel = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [i64, i64.as_pointer()]).as_pointer())
        builder.call(kernel, [args[1], _element(context, builder, signature, args, 2)])
        return context.get_dummy_value()
    return types.void(types.int64, types.int64, calls, types.int64), generate


@intrinsic
def _add(typingctx, counters, index, amount):
    """Add to a counter at once, for all threads; returns what it was."""
    def generate(context, builder, signature, args):
        return builder.atomic_rmw("add", _element(context, builder, signature, args, 0), args[2], "seq_cst")
    return types.int64(counters, types.int64, types.int64), generate


@intrinsic
def _exchange(typingctx, counters, index, value):
    """Set a counter; what this thread did before is seen by all before it, what it does next comes after it."""
    def generate(context, builder, signature, args):
        builder.atomic_rmw("xchg", _element(context, builder, signature, args, 0), args[2], "seq_cst")
        return context.get_dummy_value()
    return types.void(counters, types.int64, types.int64), generate


@intrinsic
def _read(typingctx, counters, index):
    """A counter, and with it all that its last writer did before."""
    def generate(context, builder, signature, args):
        return builder.load_atomic(_element(context, builder, signature, args, 0), "seq_cst", 8)
    return types.int64(counters, types.int64), generate


@intrinsic
def _pause(typingctx, long):
    """Tell the core that this thread waits; if `long`, let the system run another one."""
    def generate(context, builder, signature, args):
        nothing, i32 = ir.FunctionType(ir.VoidType(), []), ir.IntType(32)
        if platform.machine() in ("x86_64", "AMD64"):
            builder.call(cgutils.get_or_insert_function(builder.module, nothing, "llvm.x86.sse2.pause"), [])
        if os.name == "posix":
            with builder.if_then(args[0], likely=False):
                builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(i32, []), "sched_yield"), [])
        return context.get_dummy_value()
    return types.void(types.boolean), generate


def _element(context, builder, signature, args, position):
    """The address of element args[position + 1] of the array args[position]."""
    array = context.make_array(signature.args[position])(context, builder, args[position])
    return builder.gep(array.data, [args[position + 1]])
