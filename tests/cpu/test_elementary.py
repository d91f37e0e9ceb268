"""Compiled elementary functions give the bits of their NumPy source, at every place of a vector loop."""

import numpy as np
import pytest
from numba import njit

from vtlite import elementary
from vtlite.cpu import elementary as compiled

EDGES = np.float32([0, -0.0, 1, -1, 1e-45, -1e-45, 88.8, 89, -103.9, -104, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("name, low, high", [("exp", -110, 95), ("log", -1, 1e6), ("silu", -110, 100),
                                             ("softplus", -110, 100), ("tanh", -20, 20), ("sin", -2.0**20, 2.0**20),
                                             ("cos", -2.0**20, 2.0**20)])
def test_bits_of_the_source(rng, name, low, high):
    function = getattr(compiled, name)

    @njit(error_model="numpy")
    def fill(x, y):
        for i in range(x.size):
            y[i] = function(x[i])

    edges = EDGES if name not in ("sin", "cos") else EDGES[np.isfinite(EDGES)]
    x = np.concatenate([edges, rng.uniform(low, high, 20_000), rng.uniform(-3, 3, 20_001)]).astype(np.float32)
    y = np.empty_like(x)
    fill(x, y)
    assert np.array_equal(y, getattr(elementary, name)(x), equal_nan=True)
    for i, j in ((0, 1), (1, 9), (3, 20), (50, 99)):
        part = np.empty(j - i, np.float32)
        fill(x[i:j], part)
        assert np.array_equal(part, y[i:j], equal_nan=True)
