"""Rotary position embedding          (Su et al. 2021, arXiv:2104.09864)

Pair j of a head turns by the angle t f_j at position t:
    y1 = x1 cos - x2 sin,   y2 = x2 cos + x1 sin.
Hugging Face checkpoints pair element j with j + R/2 ("half-split"); DeepSeek pairs 2j with 2j + 1
("interleaved"). Only the first R elements of a head turn; the rest pass through ("partial").
"""

import numpy as np

from vtlite.reference.precision import widen


def rope_cos_sin(positions: np.ndarray, inv_freq: np.ndarray, attention_factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """positions [T], inv_freq [R/2] f32 or f64 -> cos, sin [T, R/2] of inv_freq's type, times attention_factor.

    The angle is the product rounded to inv_freq's type, as in transformers.
    """
    angle = positions.astype(inv_freq.dtype)[:, None] * inv_freq
    factor = inv_freq.dtype.type(attention_factor)
    return np.cos(angle) * factor, np.sin(angle) * factor


def rotary(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool = False) -> np.ndarray:
    """x [T, H, D], cos and sin [T, R/2] with R <= D -> [T, H, D] in x's type."""
    half = cos.shape[-1]
    turning = widen(x[..., : 2 * half])
    cos, sin = cos[:, None], sin[:, None]                                   # [T, 1, R/2]
    x1, x2 = (turning[..., 0::2], turning[..., 1::2]) if interleaved else (turning[..., :half], turning[..., half:])
    y = x.copy()
    y1, y2 = (y[..., 0 : 2 * half : 2], y[..., 1 : 2 * half : 2]) if interleaved else (y[..., :half], y[..., half : 2 * half])
    y1[...] = (x1 * cos - x2 * sin).astype(x.dtype)
    y2[...] = (x2 * cos + x1 * sin).astype(x.dtype)
    return y
