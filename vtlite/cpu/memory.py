"""Memory for weights on huge pages.

Reading a matrix of a few megabytes once, as a decode step does, misses the TLB at every 4 KiB page of a mapped file.
NumPy asks the kernel for 2 MiB pages under arrays of 4 MiB and more, so weights are copied into a few large ones:
a fifth less time per token for SmolLM2 (bench/cpu.py).
"""

import math

import numpy as np

CHUNK_BYTES = 64 << 20
ALIGNMENT = 64              # a cache line


class WeightMemory:
    """Hands out arrays from chunks of CHUNK_BYTES; they are never given back one by one."""

    def __init__(self):
        self._chunk = np.empty(0, np.uint8)
        self._used = 0

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An uninitialised array that starts on a cache line."""
        num_bytes = math.prod(shape) * dtype.itemsize
        if self._used + num_bytes > len(self._chunk):
            self._chunk = np.empty(max(CHUNK_BYTES, num_bytes + ALIGNMENT), np.uint8)
            self._used = -self._chunk.ctypes.data % ALIGNMENT
        array = self._chunk[self._used : self._used + num_bytes].view(dtype).reshape(shape)
        self._used += -(-num_bytes // ALIGNMENT) * ALIGNMENT
        return array
