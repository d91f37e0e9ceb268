"""Gated activations.

silu_and_mul         y = silu(gate) * up,    silu(z) = z / (1 + exp(-z))                    (Shazeer 2020, arXiv:2002.05202)
gelu_tanh_and_mul    y = gelu(gate) * up,    gelu(z) = z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))      (arXiv:1606.08415)
sigmoid_gate         y = x / (1 + exp(-gate)): the output gate of Qwen3-Next's attention        (arXiv:2505.06708)
"""

import numpy as np

from vtlite.reference.precision import widen


def silu_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F], gate in the first half, up in the second -> [T, F] in its type."""
    gate, up = np.split(widen(gate_up), 2, axis=-1)
    with np.errstate(over="ignore"):          # exp(-z) = inf for z << 0 gives silu = -0, as it should
        return (gate / (1 + np.exp(-gate)) * up).astype(gate_up.dtype)


def gelu_tanh_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F], gate in the first half, up in the second -> [T, F] in its type."""
    gate, up = np.split(widen(gate_up), 2, axis=-1)
    inner = np.sqrt(2 / np.pi, dtype=gate.dtype) * (gate + gate.dtype.type(0.044715) * gate**3)
    return (gate * (1 + np.tanh(inner)) / 2 * up).astype(gate_up.dtype)


def sigmoid_gate(x: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """x, gate of one shape -> x sigmoid(gate) in x's type."""
    with np.errstate(over="ignore"):
        return (widen(x) / (1 + np.exp(-widen(gate)))).astype(x.dtype)
