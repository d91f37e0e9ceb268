"""vtlite/reference/activation.py against its equation in float64."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.bounds import PRECISIONS, assert_is_rounding_of, draw
from vtlite.reference import gelu_tanh_and_mul, sigmoid_gate, silu_and_mul


@given(st.integers(1, 5), st.integers(1, 20), st.sampled_from(PRECISIONS), st.integers(0, 99))
def test_is_silu_of_the_first_half_times_the_second(T, F, dtype, seed):
    gate_up = draw(np.random.default_rng(seed), (T, 2 * F), dtype) * dtype.type(3)
    exact = np.array([[g / (1 + math.exp(-g)) * u for g, u in zip(row[:F], row[F:])] for row in gate_up.astype(float).tolist()])
    assert_is_rounding_of(silu_and_mul(gate_up), exact, 32 * np.abs(exact), dtype)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_far_ends_are_zero_and_identity_without_a_warning(dtype):
    with np.errstate(all="raise", under="ignore"):
        low, high = silu_and_mul(np.array([[-1000, 1000, 1, 1]], dtype))[0]
    assert low == 0 and high == 1000 if dtype != PRECISIONS[2] else abs(float(high) - 1000) <= 2


@given(st.integers(1, 5), st.integers(1, 20), st.sampled_from(PRECISIONS), st.integers(0, 99))
def test_is_gelu_of_the_first_half_times_the_second(T, F, dtype, seed):
    gate_up = draw(np.random.default_rng(seed), (T, 2 * F), dtype)
    exact = np.array([[g / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))) * u for g, u in zip(row[:F], row[F:])]
                      for row in gate_up.astype(float).tolist()])
    noise = 64 * np.abs(np.prod(np.split(gate_up.astype(float), 2, axis=1), axis=0))        # 1 + tanh cancels for g << 0
    assert_is_rounding_of(gelu_tanh_and_mul(gate_up), exact, noise, dtype)


@given(st.integers(1, 5), st.integers(1, 20), st.sampled_from(PRECISIONS), st.integers(0, 99))
def test_the_gate_is_a_sigmoid(T, F, dtype, seed):
    rng = np.random.default_rng(seed)
    x, gate = draw(rng, (T, F), dtype), draw(rng, (T, F), dtype) * dtype.type(3)
    exact = x.astype(float) / np.array([[1 + math.exp(-g) for g in row] for row in gate.astype(float)])
    assert_is_rounding_of(sigmoid_gate(x, gate), exact, 32 * np.abs(exact), dtype)
