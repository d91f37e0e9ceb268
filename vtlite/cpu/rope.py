"""Rotary position embedding    y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin

Pairs, partial rotation and layouts as in reference/rope.py. y1 = fma(x1, cos, -(x2 sin)), y2 = fma(x2, cos, x1 sin).
"""

import numpy as np
from numba import njit

from vtlite.cpu.elementary import cos as cos_of, sin as sin_of
from vtlite.cpu.simd import bits, fma


def rope_cos_sin(positions: np.ndarray, inv_freq: np.ndarray, attention_factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """positions [T], inv_freq [R/2] f32 -> cos, sin [T, R/2] f32 of the angle rounded to float32, times attention_factor."""
    angle = positions.astype(np.float32)[:, None] * inv_freq.astype(np.float32, copy=False)
    cos, sin = np.empty_like(angle), np.empty_like(angle)
    _cos_sin(angle.reshape(-1), np.float32(attention_factor), cos.reshape(-1), sin.reshape(-1))
    return cos, sin


def rotary(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool = False) -> np.ndarray:
    """x [T, H, D] f32, cos and sin [T, R/2] with R <= D -> [T, H, D] f32."""
    y = np.empty(x.shape, np.float32)
    _rotary(bits(x), bits(cos), bits(sin), interleaved, y)
    return y


@njit(cache=True)
def _cos_sin(angle, factor, cos, sin):
    for i in range(angle.size):
        cos[i], sin[i] = cos_of(angle[i]) * factor, sin_of(angle[i]) * factor


@njit(cache=True)
def _rotary(x, cos, sin, interleaved, y):
    T, H, D = x.shape
    half = cos.shape[1]
    step, apart = (2, 1) if interleaved else (1, half)
    for t in range(T):
        for h in range(H):
            for j in range(half):
                i1 = step * j
                i2 = i1 + apart
                x1, x2, c, s = x[t, h, i1], x[t, h, i2], cos[t, j], sin[t, j]
                y[t, h, i1] = fma(x1, c, -(x2 * s))
                y[t, h, i2] = fma(x2, c, x1 * s)
            for d in range(2 * half, D):
                y[t, h, d] = x[t, h, d]
