"""Gated activation    y = silu(gate) * up,  silu(z) = z / (1 + exp(-z))

Each element by itself, with elementary.silu.   Bytes: 12 per element of y; bound by exp in a cache.
"""

import numpy as np
from numba import njit

from vtlite.cpu.elementary import silu
from vtlite.cpu.simd import bits


def silu_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F] f32, gate in the first half, up in the second -> [T, F] f32."""
    y = np.empty((len(gate_up), gate_up.shape[1] // 2), np.float32)
    _silu_and_mul(bits(gate_up), y)
    return y


@njit(error_model="numpy", cache=True)
def _silu_and_mul(gate_up, y):
    T, F = y.shape
    for t in range(T):
        gate, up = gate_up[t, :F], gate_up[t, F:]
        for f in range(F):
            y[t, f] = silu(gate[f]) * up[f]
