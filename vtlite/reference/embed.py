"""Rows of a matrix by index    y[i] = x[rows[i]]"""

import numpy as np


def embedding(input_ids: np.ndarray, weight: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """input_ids [T] in 0..V-1, weight [V, D] -> [T, D] as `dtype`, which becomes the type of the activations."""
    return weight[input_ids].astype(dtype)


def gather_rows(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """x [T, D], rows [L] in 0..T-1 -> [L, D] in x's type."""
    return x[rows]
