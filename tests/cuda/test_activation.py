"""The gate kernel's division without a branch: where it says that it is right it has the bits of x / (1 + e^-gate)."""

import numpy as np

from tests.cuda.test_quick import BFLOATS, assert_same_bits
from vtlite import elementary
from vtlite.cuda.activation import quickly_gated

f32 = np.float32
USUAL = [1.0, -1.5, 0.0107, -57.25, 240.0]
EXTREME = [0.0, -0.0, 2.0**-133, -(2.0**-126), 1e-20, 2.0**89, -(2.0**90), 2.0**97, -3e38, np.inf, -np.inf, np.nan]


def test_what_is_said_to_be_right_has_the_bits_of_the_definition():
    for x in USUAL + EXTREME:
        x = np.full(len(BFLOATS), x, f32)
        with np.errstate(all="ignore"):
            (found, right), exact = quickly_gated(x, BFLOATS), x / (f32(1) + elementary.exp(-BFLOATS))
            assert_same_bits(np.where(right, found, exact), exact, BFLOATS)


def test_usual_numbers_and_gates_that_close_take_the_short_way():
    gates = BFLOATS[np.abs(BFLOATS) < 400]
    with np.errstate(all="ignore"):
        for x in USUAL:
            normal = (gates > -80) | (gates < -88.75)                   # between these a small x may give a subnormal quotient
            assert quickly_gated(np.full(len(gates), x, f32), gates)[1][normal].all()
