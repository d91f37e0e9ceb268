"""Gated activations, each element by itself, with the functions of vtlite.elementary.

silu_and_mul         y = silu(gate) * up
gelu_tanh_and_mul    y = gelu(gate) * up, tanh form
sigmoid_gate         y = x * sigmoid(gate)
Bytes: 12 per element of y; bound by exp while they fit a cache.
"""

import numpy as np
from numba import njit

from vtlite.cpu.elementary import gelu_tanh, sigmoid, silu
from vtlite.cpu.simd import bits


def silu_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F] f32, gate in the first half, up in the second -> [T, F] f32."""
    y = np.empty((len(gate_up), gate_up.shape[1] // 2), np.float32)
    _silu_and_mul(bits(gate_up), y)
    return y


def gelu_tanh_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F] f32, gate in the first half, up in the second -> [T, F] f32."""
    y = np.empty((len(gate_up), gate_up.shape[1] // 2), np.float32)
    _gelu_tanh_and_mul(bits(gate_up), y)
    return y


def sigmoid_gate(x: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """x, gate of one shape, f32 -> x * sigmoid(gate)."""
    y = np.empty(x.shape, np.float32)
    _sigmoid_gate(bits(x).reshape(-1), bits(gate).reshape(-1), y.reshape(-1))
    return y


@njit(error_model="numpy", cache=True)
def _silu_and_mul(gate_up, y):
    T, F = y.shape
    for t in range(T):
        gate, up = gate_up[t, :F], gate_up[t, F:]
        for f in range(F):
            y[t, f] = silu(gate[f]) * up[f]


@njit(error_model="numpy", cache=True)
def _gelu_tanh_and_mul(gate_up, y):
    T, F = y.shape
    for t in range(T):
        gate, up = gate_up[t, :F], gate_up[t, F:]
        for f in range(F):
            y[t, f] = gelu_tanh(gate[f]) * up[f]


@njit(error_model="numpy", cache=True)
def _sigmoid_gate(x, gate, y):
    for i in range(x.size):
        y[i] = x[i] * sigmoid(gate[i])
