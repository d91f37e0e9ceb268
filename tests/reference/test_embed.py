"""vtlite/reference/embed.py: rows of the table, in the type asked for."""

import numpy as np
import pytest

from tests.reference.bounds import BF16, PRECISIONS, draw
from vtlite.reference import embedding


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_takes_the_row_of_each_id(dtype):
    weight = draw(np.random.default_rng(0), (7, 5), BF16)
    y = embedding(np.array([6, 0, 6, 3]), weight, dtype)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.stack([weight[6], weight[0], weight[6], weight[3]]).astype(dtype))
