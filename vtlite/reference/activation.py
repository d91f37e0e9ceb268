"""Gated activations of the feed-forward block.

silu_and_mul    y = silu(gate) * up,  silu(z) = z / (1 + exp(-z))       (Shazeer 2020, arXiv:2002.05202)
"""

import numpy as np

from vtlite.reference.precision import widen


def silu_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F], gate in the first half, up in the second -> [T, F] in its type."""
    gate, up = np.split(widen(gate_up), 2, axis=-1)
    with np.errstate(over="ignore"):          # exp(-z) = inf for z << 0 gives silu = -0, as it should
        return (gate / (1 + np.exp(-gate)) * up).astype(gate_up.dtype)
