"""exp, cos and sin: the errors their docstrings state, and the same bits at every place of a vector loop."""

import numpy as np
import pytest
from numba import njit

from vtlite.cpu import elementary
from vtlite.cpu.rope import rope_cos_sin


@njit
def _exp(x, y):
    for i in range(x.size):
        y[i] = elementary.exp(x[i])


def exp(x):
    y = np.empty_like(x)
    _exp(x, y)
    return y


def ulps(found, truth):
    return np.abs(found.astype(np.float64) - truth) / np.spacing(np.abs(truth).astype(np.float32)).astype(np.float64)


def test_exp_is_within_one_ulp():
    x = np.linspace(-104, 88.7, 1_000_003).astype(np.float32)
    assert ulps(exp(x), np.exp(x.astype(np.float64))).max() < 1
    near_zero = (2.0 ** np.arange(-149, 0)).astype(np.float32)
    assert ulps(exp(near_zero), np.exp(near_zero.astype(np.float64))).max() < 1


def test_exp_at_its_edges():
    found = exp(np.float32([0, -0.0, -np.inf, -200, np.inf, 89, np.nan]))
    assert np.array_equal(found, np.float32([1, 1, 0, 0, np.inf, np.inf, np.nan]), equal_nan=True)


def test_exp_does_not_depend_on_its_place():
    x = np.random.default_rng(0).standard_normal(100, np.float32) * 20
    assert all(np.array_equal(exp(x[i:j]), exp(x)[i:j]) for i, j in ((0, 1), (1, 9), (3, 20), (50, 99)))


@pytest.mark.parametrize("theta", (1e4, 1e6))
def test_cos_and_sin_are_rounded_once(theta):
    positions = np.concatenate([np.arange(2000), np.arange(0, 1 << 20, 997)])
    inv_freq = (theta ** (-np.arange(32) / 32)).astype(np.float32)
    angle = (positions.astype(np.float32)[:, None] * inv_freq).astype(np.float64)
    for found, truth in zip(rope_cos_sin(positions, inv_freq), (np.cos(angle), np.sin(angle))):
        assert ulps(found, truth).max() < 0.501
