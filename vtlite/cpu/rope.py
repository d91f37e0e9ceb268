"""Rotary position embedding    y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin

Pairs, partial rotation and layouts as in reference/rope.py. y1 = fma(x1, cos, -(x2 sin)), y2 = fma(x2, cos, x1 sin).
"""

import numpy as np

from vtlite.cpu.elementary import cos as cos_of, sin as sin_of
from vtlite.cpu.kernel import SERIAL_BELOW, Kernel, float_in, pointer_to, run
from vtlite.cpu.simd import fma
from vtlite.cpu.strided import bits


def rope_cos_sin(positions: np.ndarray, inv_freq: np.ndarray, attention_factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """positions [T] i64, inv_freq [R/2] f32 -> cos, sin [T, R/2] f32 of the angle rounded to float32, times attention_factor."""
    T, half = len(positions), len(inv_freq)
    cos, sin = np.empty((2, T, half), np.float32)
    run(_cos_sin, T, positions, inv_freq.astype(np.float32, copy=False), cos, sin, half, float(attention_factor),
        parallel=cos.size >= SERIAL_BELOW)
    return cos, sin


def rotary(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool = False) -> np.ndarray:
    """x [T, H, D] f32, cos and sin [T, R/2] with R <= D -> [T, H, D] f32."""
    T, H, D = x.shape
    y = np.empty(x.shape, np.float32)
    run(_rotary, T, bits(x), bits(cos), bits(sin), y, H, D, cos.shape[1], int(interleaved), parallel=y.size >= SERIAL_BELOW)
    return y


@Kernel
def _cos_sin(task, args):
    """All pairs at one position."""
    position, inv_freq = np.float32(pointer_to(args[0], np.int64)[task]), pointer_to(args[1], np.float32)
    cos, sin, half, factor = pointer_to(args[2], np.float32), pointer_to(args[3], np.float32), args[4], float_in(args[5])
    for j in range(half):
        angle, i = position * inv_freq[j], task * half + j
        cos[i], sin[i] = cos_of(angle) * factor, sin_of(angle) * factor


@Kernel
def _rotary(task, args):
    """All heads of one token."""
    x, y = pointer_to(args[0], np.float32), pointer_to(args[3], np.float32)
    cos, sin = pointer_to(args[1], np.float32), pointer_to(args[2], np.float32)
    H, D, half, interleaved = args[4], args[5], args[6], args[7]
    step, apart = (2, 1) if interleaved else (1, half)
    for head in range(task * H * D, (task + 1) * H * D, D):
        for j in range(half):
            i1 = head + step * j
            i2 = i1 + apart
            x1, x2, c, s = x[i1], x[i2], cos[task * half + j], sin[task * half + j]
            y[i1] = fma(x1, c, -(x2 * s))
            y[i2] = fma(x2, c, x1 * s)
        for i in range(head + 2 * half, head + D):
            y[i] = x[i]
