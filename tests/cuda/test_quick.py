"""The GPU's forms of silu and gelu_tanh, and its division by 1 + e^-x, give the bits of their definitions."""

import numpy as np
import pytest

from vtlite import elementary
from vtlite.cuda.lang import quarter_of_one_plus_exp_minus, quick, quotient, reciprocal
from vtlite.cuda.lang.primitive import COMPILED_AS
from vtlite.cuda.lang.quick import INFINITE_QUARTER

f32, u32 = np.float32, np.uint32
BFLOATS = (np.arange(1 << 16, dtype=u32) << u32(16)).view(f32)                    # every bf16, NaN and infinity included
EDGES = np.array([-89, -88.7228, -88.7229, -87.3365, -104, 20, 17.4, 0, -0.0, 2.0**-126, -(2.0**-149), 2.0**-23, -(2.0**-24)], f32)


def neighbours(x, count):
    """The f32 within `count` steps of each."""
    return (x.view(np.int32)[:, None] + np.arange(-count, count + 1, dtype=np.int32)).view(f32).ravel()


def arguments(seed):
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 1 << 32, 300_000, u32).view(f32)
    return np.concatenate([BFLOATS, neighbours(EDGES, 200), anything, rng.uniform(-90, 22, 300_000).astype(f32)])


def assert_same_bits(got, want, x):
    differ = (got.view(u32) != want.view(u32)) & ~(np.isnan(got) & np.isnan(want))
    at = int(np.argmax(differ))
    assert not differ.any(), f"{differ.sum()} of {len(x)} differ: at {float(x[at]).hex()} {got[at]!r} instead of {want[at]!r}"


@pytest.mark.parametrize("name", ["silu", "gelu_tanh"])
def test_the_compiled_form_has_the_bits_of_the_definition(name):
    definition, compiled = getattr(elementary, name), getattr(quick, name)
    assert COMPILED_AS[definition] is compiled
    x = arguments(1)
    with np.errstate(all="ignore"):
        assert_same_bits(compiled(x), definition(x), x)


def test_the_divisor_is_four_times_its_quarter_or_infinite():
    x = arguments(2)
    with np.errstate(all="ignore"):
        quarter, divisor = quarter_of_one_plus_exp_minus(x), f32(1) + elementary.exp(-x)
        assert_same_bits(np.where(quarter < INFINITE_QUARTER, f32(4) * quarter, divisor), divisor, x)
    assert np.isinf(divisor[quarter >= INFINITE_QUARTER]).all() and (quarter[~np.isnan(x)] < 2.0**127).all()


def test_quotients_are_rounded_right_whatever_the_fractions():
    rng = np.random.default_rng(3)
    hard = np.arange(0x7FFF00, 0x800000, dtype=np.int32)                          # next to two, where 1 / h is hardest to round
    fractions = np.concatenate([hard, rng.integers(0, 1 << 23, 4000, np.int32)])
    h = (fractions + (rng.integers(125, 252, len(fractions), np.int32) << np.int32(23))).view(f32)
    x = (rng.integers(0, 1 << 23, (len(h), 60), np.int32) + (rng.integers(100, 140, (len(h), 60), np.int32) << np.int32(23))).view(f32)
    x[:, 0] = 1
    h = np.broadcast_to(h[:, None], x.shape)
    with np.errstate(all="ignore"):
        got, want = quotient(x, h, reciprocal(h)), x / h
    inside = np.abs(want) >= 2.0**-100
    assert inside.sum() > 100_000
    assert_same_bits(got[inside], want[inside], x[inside])


def test_a_huge_numerator_gives_nan_which_tells_it_from_a_right_quotient():
    x, h = np.array([3e38, np.inf, -np.inf, np.nan], f32), np.full(4, 0.25, f32)
    with np.errstate(all="ignore"):
        assert np.isnan(quotient(x, h, reciprocal(h))).all()
