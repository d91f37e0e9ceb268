"""Compiled kernels, and how they are run: their tasks one after another, or shared out among the cores.

A kernel is a function `(task, args)` with no result. `args` points to 64-bit slots, in the order of `run`'s arguments:
addresses of arrays, integers, and floats by their float64 bits; `pointer_to` and `float_in` read them. That one shape
is why a single launcher serves all kernels: Numba compiles its parallel loop once, in half a second, instead of one for
each kernel, at two seconds apiece; an empty launch takes 4 us.

A kernel is compiled, or read from Numba's cache, at its first run. Arrays must be C-contiguous; nothing is checked.
"""

import gc
import os
import threading
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, prange, types
from numba.extending import intrinsic

# libgomp's threads spin when they have nothing to do. This should be a few tenths of a millisecond: longer than the pause between
# two launches of a decode step, short enough to leave the core to others soon; no setting was clearly faster. It must be said before libgomp is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

SERIAL_BELOW = 1 << 15            # elements of a cheap operation: fewer are over before a second thread has woken

_SIGNATURE = types.void(types.int64, types.CPointer(types.int64))
_lock = threading.Lock()          # Numba's fallback threading layer ends the process if two threads launch at once


class Kernel:
    """A Python function as a compiled kernel; use as a decorator."""

    def __init__(self, function):
        self.function = function

    @cached_property
    def address(self) -> int:
        return self._compiled.address

    @cached_property
    def _compiled(self):
        collecting = gc.isenabled()
        gc.disable()                     # a quarter of the time would go into looking for garbage in live syntax trees
        try:
            return cfunc(_SIGNATURE, cache=True, error_model="numpy")(self.function)
        finally:
            if collecting:
                gc.enable()


def run(kernel: Kernel, tasks: int, *arguments: np.ndarray | int | float, parallel: bool = True) -> None:
    """Call kernel(0, args) .. kernel(tasks - 1, args); `parallel` shares them out in contiguous ranges."""
    slots = np.array([_slot(a) for a in arguments], np.int64)
    if parallel and tasks > 1:
        with _lock:
            _run_parallel(kernel.address, tasks, slots)
    else:
        _run_serial(kernel.address, tasks, slots)


def _slot(argument: np.ndarray | int | float) -> int:
    if isinstance(argument, np.ndarray):
        return _address(argument.reshape(-1))
    return _float_bits(argument) if isinstance(argument, float) else argument


@cache
def _float_bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


@njit(cache=True)
def _address(array):
    """Address of a flat array's first element; a quarter of the time that array.ctypes.data takes in Python."""
    return array.ctypes.data


@intrinsic
def pointer_to(typingctx, slot, dtype):
    """The slot as the address of elements of the NumPy type `dtype`."""
    element = dtype.dtype

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))
    return types.CPointer(element)(slot, dtype), generate


@intrinsic
def float_in(typingctx, slot):
    """The slot as a float, rounded to float32."""
    def generate(context, builder, signature, args):
        return builder.fptrunc(builder.bitcast(args[0], ir.DoubleType()), ir.FloatType())
    return types.float32(slot), generate


@intrinsic
def _call(typingctx, address, task, slots):
    def generate(context, builder, signature, args):
        i64 = ir.IntType(64)
        kernel = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [i64, i64.as_pointer()]).as_pointer())
        builder.call(kernel, [args[1], context.make_array(signature.args[2])(context, builder, args[2]).data])
        return context.get_dummy_value()
    return types.void(types.int64, types.int64, slots), generate


@njit(parallel=True, nogil=True, cache=True)
def _run_parallel(address, tasks, slots):
    for task in prange(tasks):
        _call(address, task, slots)


@njit(nogil=True, cache=True)
def _run_serial(address, tasks, slots):
    for task in range(tasks):
        _call(address, task, slots)


def compiled_before() -> bool:
    """Whether Numba's cache holds the launcher, which stands for all kernels."""
    return any(Path(_run_parallel.stats.cache_path).glob("kernel._run_parallel-*.nbi"))
