"""Each function keeps the error its docstring states, and gives an array the bits it gives each element."""

import numpy as np
import pytest

from vtlite import elementary
from vtlite.ieee import f32

RNG = np.random.default_rng(0)
COUNT = 100_000
POSITIVE = RNG.integers(1, 0x7F800000, COUNT).astype(np.int32).view(f32)       # every exponent, subnormals included


def between(low, high):
    return RNG.uniform(low, high, COUNT).astype(f32)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


# name, exact function, arguments, bound in ulp, smallest magnitude whose ulp counts
CASES = [
    ("exp", np.exp, between(-104, 89), 1.1, 0),
    ("exp", np.exp, between(-1, 1), 1.1, 0),
    ("exp2", np.exp2, between(-150, 128), 1.1, 0),
    ("log", np.log, POSITIVE, 1.1, 0),
    ("log", np.log, between(0.5, 2), 1.1, 0),
    ("log1p", np.log1p, POSITIVE, 1.5, 0),
    ("log1p", np.log1p, between(0, 1), 1.5, 0),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), between(-80, 80), 2.5, 0),
    ("silu", lambda x: x / (1 + np.exp(-x)), between(-80, 80), 3, 0),
    ("softplus", softplus, between(-80, 80), 2.5, 0),
    ("rsqrt", lambda x: 1 / np.sqrt(x), POSITIVE, 1.6, 0),
    ("sin", np.sin, between(-(2**20), 2**20), 1.8, 2**-20),
    ("sin", np.sin, between(-4, 4), 1.8, 2**-20),
    ("cos", np.cos, between(-(2**20), 2**20), 1.8, 2**-20),
    ("cos", np.cos, np.arange(COUNT).astype(f32), 1.8, 2**-20),
]


@pytest.mark.parametrize("name, exact, x, bound, smallest", CASES)
def test_error_is_within_the_stated_bound(name, exact, x, bound, smallest):
    with np.errstate(all="ignore"):
        true = exact(x.astype(np.longdouble))
        ulp = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(true), max(smallest, 2.0**-126)))) - 23)
        error = np.abs(getattr(elementary, name)(x) - true) / ulp
        fits = np.abs(true) <= np.finfo(f32).max
    assert error[fits].max() < bound


def test_gelu_is_accurate_relative_to_its_value():
    x = between(-5, 5)
    wide = x.astype(np.longdouble)
    true = wide / (1 + np.exp(-2 * np.sqrt(np.longdouble(2) / np.pi) * (wide + 0.044715 * wide**3)))
    assert (np.abs(elementary.gelu_tanh(x) - true) / np.abs(true)).max() < 5e-6


def test_softmax_exp2_is_accurate_relative_to_its_value():
    x = between(-126, 127)
    assert (np.abs(elementary.softmax_exp2(x) / np.exp2(x.astype(np.longdouble)) - 1)).max() < 2**-18
    tiny = elementary.softmax_exp2(between(-1000, -126))
    assert tiny.min() == 0 and tiny.max() <= 2**-126
    assert elementary.softmax_exp2(f32(0)) == 1 and elementary.softmax_exp2(f32(-np.inf)) == 0


def test_tanh_is_accurate_in_absolute_terms():
    x = between(-20, 20)
    assert np.abs(elementary.tanh(x) - np.tanh(x.astype(np.longdouble))).max() < 2e-7
    assert elementary.tanh(f32(np.inf)) == 1 and elementary.tanh(f32(-np.inf)) == -1


def test_special_arguments():
    e, inf = elementary, f32(np.inf)
    assert e.exp(-inf) == 0 and e.exp(inf) == inf and e.exp(f32(0)) == 1 and np.isnan(e.exp(f32(np.nan)))
    assert e.log(f32(0)) == -inf and e.log(inf) == inf and e.log(f32(1)) == 0
    assert np.isnan(e.log(np.array([-1, np.nan, -inf], f32))).all()
    assert e.sigmoid(inf) == 1 and e.sigmoid(-inf) == 0 and e.softplus(f32(-200)) == 0
    with np.errstate(invalid="ignore"):                        # what the sum lost of an infinity is unknown, and not used
        assert e.log1p(inf) == inf
    assert e.exp(f32(-103.5)) == np.finfo(f32).smallest_subnormal


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES} | {"gelu_tanh", "softmax_exp2", "tanh"}))
def test_a_scalar_gives_the_bits_it_gives_in_an_array(name):
    function, x = getattr(elementary, name), between(0.01, 3)[:200]
    assert np.array_equal(function(x), [function(value) for value in x])
    assert function(x).dtype == f32 and isinstance(function(x[0]), f32)
