"""fma rounds once, on scalars and arrays, over the whole range of float32."""

from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vtlite.ieee import fma, f32

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def nearest_f32(exact: Fraction) -> np.float32:
    """The float32 nearest to an exact value, ties to even: the middle of three neighbours of a first guess."""
    with np.errstate(over="ignore"):
        guess = f32(float(exact)) if abs(exact) < 2**128 else f32(np.inf if exact > 0 else -np.inf)
    if not np.isfinite(guess):
        largest = Fraction(float(np.finfo(f32).max))
        tie = largest + Fraction(2) ** 103
        return guess if abs(exact) >= tie else f32(np.copysign(float(largest), exact))
    with np.errstate(over="ignore"):
        around = [np.nextafter(guess, f32(-np.inf)), guess, np.nextafter(guess, f32(np.inf))]
    around = [y for y in around if np.isfinite(y)]
    return min(around, key=lambda y: (abs(Fraction(float(y)) - exact), int(y.view(np.int32)) & 1))


@settings(max_examples=1500)
@given(floats, floats, floats)
@example(1 + 2**-23, 1 + 2**-23, -1.0)
@example(1 + 2**-12, 1 + 2**-12, 2.0**-80)        # a tie in f32 that rounding twice would break
@example(1.0, 1.0, 2.0**-60)
@example(2.0**-75, 2.0**-75, 2.0**-149)
def test_fma_is_the_exact_value_rounded_once(a, b, c):
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    result = fma(f32(a), f32(b), f32(c))
    assert result == nearest_f32(exact)


def test_fma_of_arrays_is_fma_of_their_elements():
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(999).astype(f32) * f32(10) ** rng.integers(-20, 20, 999).astype(f32) for _ in range(3))
    assert np.array_equal(fma(a, b, c), [fma(x, y, z) for x, y, z in zip(a, b, c)])


def test_fma_passes_infinities_and_nan_on():
    inf = f32(np.inf)
    assert fma(inf, f32(1), f32(1)) == inf and fma(f32(2), f32(3), -inf) == -inf
    assert np.isnan(fma(inf, f32(0), f32(1))) and np.isnan(fma(inf, f32(1), -inf))
