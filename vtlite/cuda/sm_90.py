"""The kernels' arithmetic on NumPy arrays: what a Hopper GPU computes, bit for bit, without running every thread.

Names and arguments are those of vtlite/reference. That defines values; these functions define the bits as well, for
comparing a whole model with a GPU where the emulator would take too long. Activations are bfloat16.
"""

import numpy as np

from vtlite.cuda import tensor_core
from vtlite.cuda.attention_arithmetic import paged_attention  # noqa: F401
from vtlite.cuda.lang.types import f32, u16
from vtlite.elementary import silu
from vtlite.ieee import mul


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None,
           residual: np.ndarray | None = None, out_dtype: np.dtype | None = None) -> np.ndarray:
    """x [T, K], weight [N, K], bias [N], residual [T, N] bf16 -> [T, N] in `out_dtype` (default bf16): see linear.py."""
    K = -(-x.shape[1] // tensor_core.STEP) * tensor_core.STEP
    y = tensor_core.chain(_padded(x, K), _padded(weight, K), np.zeros((len(x), len(weight)), f32))
    if bias is not None:
        y += bias.astype(f32)
    if residual is not None:
        y += residual.astype(f32)
    return y.astype(out_dtype or x.dtype, copy=False)


def silu_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F] bf16, gate in the first half, up in the second -> [T, F] bf16: see activation.py."""
    gate, up = np.split(gate_up.astype(f32), 2, axis=-1)
    return mul(silu(gate), up).astype(gate_up.dtype)


def _padded(x: np.ndarray, K: int) -> np.ndarray:
    """Bit patterns of bf16 rows, with zeros up to K."""
    return np.pad(x.view(u16), ((0, 0), (0, K - x.shape[1])))
