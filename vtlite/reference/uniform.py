"""Weights without a checkpoint    y[i] = center + spread * (2 u_i - 1),   u_i in [0, 1) a hash of (seed, i)

Hash: Wellons' "lowbias32" (https://nullprogram.com/blog/2018/07/31/) of i + seed * 2^32 / phi, its upper 24 bits.
"""

import math

import ml_dtypes
import numpy as np

AT_ONCE = 1 << 20                # elements: what is computed at once stays in a cache


def uniform(shape: tuple[int, ...], seed: int, center: float, spread: float) -> np.ndarray:
    """bfloat16 numbers between center - spread and center + spread: the same ones for the same `seed`, 0 .. 2^32 - 1."""
    y = np.empty(math.prod(shape), ml_dtypes.bfloat16)
    center, spread, offset = np.float32(center), np.float32(spread), seed * 0x9E3779B9 % 2**32
    for first in range(0, len(y), AT_ONCE):
        part = y[first : first + AT_ONCE]
        bits = _lowbias32((np.arange(first, first + len(part), dtype=np.uint64) + np.uint64(offset)).astype(np.uint32))
        u = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23)
        part[:] = center + spread * (u - np.float32(1))
    return y.reshape(shape)


def _lowbias32(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
