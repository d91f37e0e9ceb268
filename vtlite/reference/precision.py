"""Which type an operation computes in, given the type of its activations."""

import numpy as np


def widen(x: np.ndarray) -> np.ndarray:
    """x in the type its op computes in: float64 stays, everything narrower becomes float32 (exactly)."""
    return x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
