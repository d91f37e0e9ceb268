"""Weights without a checkpoint: the same on every device, spread as they should be, told apart by their seed."""

import numpy as np

from vtlite import reference
from vtlite.cuda.uniform import uniform


def test_a_device_draws_the_definitions_bits(device):
    for shape, seed in (((3,), 0), ((5, 63), 7), ((2, 1500), 2**32 - 1)):
        drawn = uniform(shape, seed, 1.0, 0.25).numpy()
        np.testing.assert_array_equal(drawn.view(np.uint16), reference.uniform(shape, seed, 1.0, 0.25).view(np.uint16))


def test_numbers_fill_their_range_evenly():
    drawn = reference.uniform((1 << 20,), 3, 0.0, 2.0).astype(np.float64)
    assert -2 <= drawn.min() < -1.99 and 1.99 < drawn.max() <= 2
    assert abs(drawn.mean()) < 0.01 and abs(drawn.std() - 2 / 3**0.5) < 0.01
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    assert abs(np.corrcoef(drawn, reference.uniform((1 << 20,), 4, 0.0, 2.0).astype(np.float64))[0, 1]) < 0.01
