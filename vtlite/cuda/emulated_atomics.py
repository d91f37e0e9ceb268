"""Atomics and fences of the emulated GPU, and the order they make between blocks.

What a thread did before a __threadfence becomes known, through an atomic it does afterwards, to every thread that
then does an atomic on the same element. Without the fence nothing is promised, and a reader's access is a race.
"""

import numpy as np

from vtlite.cuda.emulated_memory import Pointer, flat_index
from vtlite.cuda.emulated_order import Knowledge

_OPERATIONS = {"add": np.add, "max": np.maximum, "min": np.minimum, "or": np.bitwise_or, "and": np.bitwise_and,
               "exch": lambda old, new: new}


class Atomics:
    """A mixin of `emulator.Thread`."""

    def threadfence(self) -> None:
        self.fenced = self.tell()

    def atomic(self, kind: str, target, index, value):
        """target[index] = old `kind` value, in one go; `target` a pointer or a shared array. Returns old."""
        return self._atomically(*_place(target, index), lambda old: _OPERATIONS[kind](old, value))

    def atomic_cas(self, target, index, compare, value):
        """target[index] = value if it equals `compare`. Returns the old value."""
        return self._atomically(*_place(target, index), lambda old: value if old == compare else old)

    def atomic_shared(self, kind: str, address, dtype, value):
        """The same for an element of `dtype` at a byte address of shared memory."""
        size = np.dtype(dtype).itemsize
        allocation, first = self.block.shared.locate(address, size, size)
        return self._atomically(allocation, first, dtype, lambda old: _OPERATIONS[kind](old, value))

    def _atomically(self, allocation, first: int, dtype, update):
        size = np.dtype(dtype).itemsize
        allocation.check_written(first, size)
        allocation.before_write(first, size, "atomic")
        self._pass_on(allocation, first)
        view = allocation.view(dtype)
        old = view[first // size]
        view[first // size] = update(old)
        return old

    def _pass_on(self, allocation, first: int) -> None:
        """Learn what earlier atomics on this element told, and tell what this thread has fenced."""
        if self.tracks_races:
            told = allocation.told.get(first)
            if told:
                self.learn(told)
            if self.fenced:
                if told is None:
                    told = allocation.told[first] = Knowledge(self.block, len(self.block.threads))
                told.merge(self.fenced)


def _place(target, index) -> tuple:
    """Allocation, byte and type of an element of a pointer or of a shared array."""
    if isinstance(target, Pointer):
        return target.allocation, target.locate(index, target.itemsize, target.itemsize), target.dtype
    return target.allocation, flat_index(index, target.shape, target.allocation.name) * target.itemsize, target.dtype
