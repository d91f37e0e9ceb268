"""RMSNorm    y = x / sqrt(mean(x^2) + eps) * w        (Zhang and Sennrich 2019, arXiv:1910.07467)

Hugging Face rounds x / rms to the model's type before multiplying by w; here both happen in the wide
type and the result is rounded once. In float32 the two agree.
"""

import numpy as np

from vtlite.reference.precision import widen


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x [..., D], weight [D] -> [..., D] in x's type; the mean is over the last axis."""
    wide = widen(x)
    mean_square = np.mean(wide * wide, axis=-1, keepdims=True)
    return (wide / np.sqrt(mean_square + wide.dtype.type(eps)) * widen(weight)).astype(x.dtype)
