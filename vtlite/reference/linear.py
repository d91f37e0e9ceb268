"""Linear    y = x W^T + b + r"""

import numpy as np

from vtlite.reference.precision import widen


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None,
           residual: np.ndarray | None = None, out_dtype: np.dtype | None = None) -> np.ndarray:
    """x [T, K], weight [N, K], bias [N], residual [T, N] -> [T, N].

    Bias and residual are added in the wide type, before the one rounding to `out_dtype` (default: x's type).
    """
    wide = widen(x)
    y = wide @ weight.astype(wide.dtype, copy=False).T
    if bias is not None:
        y += widen(bias)
    if residual is not None:
        y += widen(residual)
    return y.astype(out_dtype or x.dtype, copy=False)
