"""Compiled kernels, and how they are run: their tasks one after another, or shared out among the cores.

A kernel is a function `(task, args)` with no result. `args` points to 64-bit slots, in the order of `run`'s arguments:
addresses of arrays, integers, and floats by their float64 bits; `pointer_to` and `float_in` read them. That one shape
is why a single launcher (launcher.py) serves all kernels.

A kernel is compiled, or read from Numba's cache, at its first run. Arrays must be C-contiguous; nothing is checked.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic

from vtlite.cpu import cores, launcher

CLAIMS = 4                        # of each thread in a call: a slower core takes fewer
SERIAL_BELOW = 1 << 15            # elements of a cheap operation: fewer are over before a second thread has woken

_SIGNATURE = types.void(types.int64, types.CPointer(types.int64))
_recording = threading.local()

# For the parts of kernels, called by compiled code alone. LLVM inlines them. inline="always" has Numba copy their syntax
# trees, which is slow for long parts and anything they inline themselves, but spares LLVM one function.
inlined = njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


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
    threads = cores.num_threads() if parallel else 1
    claim = max(1, tasks // (CLAIMS * threads)) if threads > 1 else tasks
    call = np.array([kernel.address, tasks, claim, len(arguments), *map(_slot, arguments)], np.int64)
    tape = getattr(_recording, "tape", None)
    if tape is not None:
        tape.append((call, arguments))
    launcher.launch(call, 1, claim < tasks)


@contextmanager
def recording() -> Iterator[list]:
    """A list that gets each call made in this thread inside the block, with its arguments: they must stay alive."""
    _recording.tape = []
    try:
        yield _recording.tape
    finally:
        _recording.tape = None


def _slot(argument: np.ndarray | int | float) -> int:
    if isinstance(argument, np.ndarray):
        return _address(argument.reshape(-1).view(np.uint8))             # of one type, so that _address is compiled once
    return _float_bits(argument) if isinstance(argument, float) else argument


@cache
def _float_bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


@njit(cache=True)
def _address(array):
    """Address of the first byte; a quarter of the time that array.ctypes.data takes in Python."""
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
