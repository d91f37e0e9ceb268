"""Gated activations, each element by itself, with the functions of vtlite.elementary.

silu_and_mul         y = silu(gate) * up
gelu_tanh_and_mul    y = gelu(gate) * up, tanh form
sigmoid_gate         y = x * sigmoid(gate)
Bytes: 12 per element of y; bound by exp while they fit a cache.
"""

import numpy as np

from vtlite.cpu.elementary import gelu_tanh, sigmoid, silu
from vtlite.cpu.kernel import SERIAL_BELOW, Kernel, pointer_to, run
from vtlite.cpu.strided import bits


def silu_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F] f32, gate in the first half, up in the second -> [T, F] f32."""
    return _gate_and_mul(_silu_row, gate_up)


def gelu_tanh_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F] f32, gate in the first half, up in the second -> [T, F] f32."""
    return _gate_and_mul(_gelu_tanh_row, gate_up)


def sigmoid_gate(x: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """x, gate of one shape, f32 -> x * sigmoid(gate)."""
    y = np.empty(x.shape, np.float32)
    run(_sigmoid_row, y.size // y.shape[-1], bits(x), bits(gate), y, y.shape[-1], parallel=y.size >= SERIAL_BELOW)
    return y


def _gate_and_mul(kernel: Kernel, gate_up: np.ndarray) -> np.ndarray:
    y = np.empty((len(gate_up), gate_up.shape[1] // 2), np.float32)
    run(kernel, len(y), bits(gate_up), y, y.shape[1], parallel=y.size >= SERIAL_BELOW)
    return y


@Kernel
def _silu_row(task, args):
    gate_up, y, F = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), args[2]
    for f in range(F):
        y[task * F + f] = silu(gate_up[2 * task * F + f]) * gate_up[(2 * task + 1) * F + f]


@Kernel
def _gelu_tanh_row(task, args):
    gate_up, y, F = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), args[2]
    for f in range(F):
        y[task * F + f] = gelu_tanh(gate_up[2 * task * F + f]) * gate_up[(2 * task + 1) * F + f]


@Kernel
def _sigmoid_row(task, args):
    x, gate, y = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), pointer_to(args[2], np.float32)
    for i in range(task * args[3], (task + 1) * args[3]):
        y[i] = x[i] * sigmoid(gate[i])
