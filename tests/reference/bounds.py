"""How closely a definition must agree with an independent float64 computation, in each of its three precisions."""

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
PRECISIONS = (np.dtype(np.float64), np.dtype(np.float32), BF16)
HALF_ULP = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24, BF16: 2.0**-8}


def draw(rng: np.random.Generator, shape, dtype: np.dtype) -> np.ndarray:
    """Standard normal values that `dtype` can hold."""
    return rng.standard_normal(shape).astype(dtype)


def assert_is_rounding_of(found: np.ndarray, exact: np.ndarray, noise: float, dtype: np.dtype) -> None:
    """`found` is `exact` computed in the wide type of `dtype` and rounded to `dtype` once.

    `noise` [scalar or exact's shape] is the error of the computation in units of the wide type's half ulp of 1.
    """
    wide = HALF_ULP[np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)]
    last = HALF_ULP[BF16] * np.abs(exact) if dtype == BF16 else 0.0
    excess = np.abs(found.astype(np.float64) - exact) - (1 + 2 * wide) * last - noise * wide
    assert found.dtype == dtype and found.shape == exact.shape
    assert excess.size == 0 or excess.max() <= 0, f"{dtype}: off by {excess.max():.3g} more than one rounding explains"
