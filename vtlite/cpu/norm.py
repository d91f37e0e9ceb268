"""RMSNorm    y = x / sqrt(mean(x^2) + eps) * w, plain, after an addition, or times silu(z)

x [..., D] f32; w [D] bf16, f16 or f32; y [..., D] f32.
Order: squares add up in eight lanes by fma (element d in lane d % 8, ascending), hsum's tree joins the lanes, the last
D % 8 squares follow by fma. Depends on D alone.    Bytes: 8 per element of x, bound by memory.
"""

import numpy as np
from numba import njit

from vtlite.cpu.elementary import silu
from vtlite.cpu.simd import LANES, bits, fma, hsum, load, load_one, pointer, splat


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float, zero_centered: bool = False) -> np.ndarray:
    """x [..., D] f32, weight [D] -> [..., D] f32; the mean is over the last axis. zero_centered: times 1 + weight."""
    y = np.empty(x.shape, np.float32)
    _rms_norm(bits(x).reshape(-1), bits(weight), np.float32(eps), np.float32(zero_centered), y.reshape(-1))
    return y


def add_rms_norm(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, eps: float,
                 zero_centered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(rms_norm(h), h) with h = x + residual."""
    h = x + residual
    return rms_norm(h, weight, eps, zero_centered), h


def gated_rms_norm(x: np.ndarray, z: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """rms_norm(x) * silu(z), for x and z [..., D] f32."""
    y = rms_norm(x, weight, eps)
    _times_silu(y.reshape(-1), bits(z).reshape(-1))
    return y


@njit(error_model="numpy", cache=True)
def _rms_norm(x, w, eps, offset, y):
    x_, w_, D = pointer(x), pointer(w), w.size
    for row in range(0, x.size, D):
        squares = splat(0)
        for d in range(0, D - LANES + 1, LANES):
            v = load(x_, row + d)
            squares = fma(v, v, squares)
        total = hsum(squares)
        for d in range(D - D % LANES, D):
            total = fma(x[row + d], x[row + d], total)
        rms = np.sqrt(total / np.float32(D) + eps)
        for d in range(D):
            y[row + d] = x[row + d] / rms * (load_one(w_, d) + offset)


@njit(error_model="numpy", cache=True)
def _times_silu(y, z):
    for i in range(y.size):
        y[i] *= silu(z[i])
