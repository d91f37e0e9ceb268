"""RMSNorm    y = x / sqrt(mean(x^2) + eps) * w        (Zhang and Sennrich 2019, arXiv:1910.07467)

Hugging Face rounds x / rms to the model's type before multiplying by w; here both happen in the wide
type and the result is rounded once. In float32 the two agree.
"""

import numpy as np

from vtlite.reference.precision import widen


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float, zero_centered: bool = False) -> np.ndarray:
    """x [..., D], weight [D] -> [..., D] in x's type; the mean is over the last axis.

    zero_centered: the checkpoint stores w - 1 (Gemma, Qwen3-Next), so x / rms is multiplied by 1 + weight.
    """
    return _normalised(widen(x), weight, eps, zero_centered).astype(x.dtype)


def add_rms_norm(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, eps: float,
                 zero_centered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The norm of a residual stream after x is added: (rms_norm(h), h) with h = x + residual rounded to x's type."""
    h = (widen(x) + widen(residual)).astype(x.dtype)
    return rms_norm(h, weight, eps, zero_centered), h


def gated_rms_norm(x: np.ndarray, z: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / rms * weight * silu(z), the norm before the gate (Qwen3-Next's gated delta net). x, z [..., D] -> [..., D] in x's type."""
    wide, gate = _normalised(widen(x), weight, eps, False), widen(z)
    with np.errstate(over="ignore"):          # exp(-z) = inf for z << 0 gives silu = -0, as it should
        return (wide * (gate / (1 + np.exp(-gate)))).astype(x.dtype)


def _normalised(wide: np.ndarray, weight: np.ndarray, eps: float, zero_centered: bool) -> np.ndarray:
    mean_square = np.mean(wide * wide, axis=-1, keepdims=True)
    scale = widen(weight) + 1 if zero_centered else widen(weight)
    return wide / np.sqrt(mean_square + wide.dtype.type(eps)) * scale
