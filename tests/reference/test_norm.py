"""vtlite/reference/norm.py against a loop over its equation in float64, and what a norm promises."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.bounds import BF16, PRECISIONS, assert_is_rounding_of, draw
from vtlite.reference import add_rms_norm, gated_rms_norm, rms_norm


@given(st.integers(1, 5), st.integers(1, 70), st.sampled_from([1e-6, 1e-5, 0.5]), st.sampled_from(PRECISIONS),
       st.integers(0, 99))
def test_divides_by_the_root_mean_square_and_scales(T, D, eps, dtype, seed):
    rng = np.random.default_rng(seed)
    x, weight = draw(rng, (T, D), dtype), draw(rng, D, BF16)
    exact = np.empty((T, D))
    for t in range(T):
        rms = math.sqrt(sum(float(v) ** 2 for v in x[t]) / D + eps)
        exact[t] = [float(v) / rms * float(w) for v, w in zip(x[t], weight)]
    assert_is_rounding_of(rms_norm(x, weight, eps), exact, (D + 8) * np.abs(exact), dtype)


def test_norms_each_head_over_the_last_axis():
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((3, 4, 6)), rng.standard_normal(6)
    per_head = np.stack([rms_norm(x[:, head], weight, 1e-6) for head in range(4)], axis=1)
    np.testing.assert_allclose(rms_norm(x, weight, 1e-6), per_head, rtol=1e-15)


@given(st.floats(1e-3, 1e3), st.integers(0, 99))
def test_scale_of_the_input_does_not_matter(scale, seed):
    x = np.random.default_rng(seed).standard_normal((2, 16))
    np.testing.assert_allclose(rms_norm(x * scale, np.ones(16), 0.0), rms_norm(x, np.ones(16), 0.0), rtol=1e-13)


def test_a_row_of_zeros_stays_zeros():
    assert not rms_norm(np.zeros((1, 8), np.float32), np.ones(8, BF16), 1e-6).any()


@given(st.integers(1, 4), st.integers(1, 40), st.sampled_from(PRECISIONS), st.integers(0, 99))
def test_zero_centred_weights_scale_by_one_more(T, D, dtype, seed):
    rng = np.random.default_rng(seed)
    x, weight = draw(rng, (T, D), dtype), rng.integers(-64, 64, D) / 128          # 1 + weight is exact in every type
    expected = rms_norm(x, (1 + weight).astype(dtype), 1e-6)
    assert rms_norm(x, weight.astype(dtype), 1e-6, zero_centered=True).tobytes() == expected.tobytes()


@given(st.integers(1, 4), st.integers(1, 40), st.sampled_from(PRECISIONS), st.integers(0, 99))
def test_adding_rounds_the_sum_before_the_norm(T, D, dtype, seed):
    rng = np.random.default_rng(seed)
    x, residual, weight = draw(rng, (T, D), dtype), draw(rng, (T, D), dtype), draw(rng, D, BF16)
    y, h = add_rms_norm(x, residual, weight, 1e-6)
    assert_is_rounding_of(h, x.astype(np.float64) + residual.astype(np.float64), 4, dtype)
    assert y.tobytes() == rms_norm(h, weight, 1e-6).tobytes()


@given(st.integers(1, 4), st.integers(1, 40), st.sampled_from(PRECISIONS), st.integers(0, 99))
def test_the_gate_multiplies_the_normed_value(T, D, dtype, seed):
    rng = np.random.default_rng(seed)
    x, z, weight = draw(rng, (T, D), dtype), draw(rng, (T, D), dtype), draw(rng, D, np.dtype(np.float32))
    exact = rms_norm(x.astype(np.float64), weight, 1e-6) * np.array([[v / (1 + math.exp(-v)) for v in row] for row in z.astype(float)])
    assert_is_rounding_of(gated_rms_norm(x, z, weight, 1e-6), exact, (D + 32) * np.abs(exact), dtype)
