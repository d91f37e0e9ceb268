"""Embedding    y[t] = w[ids[t]]"""

import numpy as np


def embedding(input_ids: np.ndarray, weight: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """input_ids [T] in 0..V-1, weight [V, D] -> [T, D] as `dtype`, which becomes the type of the activations."""
    return weight[input_ids].astype(dtype)
