"""vtlite/reference/rope.py: what a rotation promises, in both pairings and over part of a head."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.bounds import PRECISIONS, assert_is_rounding_of, draw
from vtlite.reference import rope_cos_sin, rotary

both_pairings = pytest.mark.parametrize("interleaved", [False, True])
halves, seeds = st.integers(1, 8), st.integers(0, 99)


def angles(rng, half: int) -> np.ndarray:
    return rng.uniform(1e-3, 2.0, half)


@given(halves, st.integers(0, 5), st.booleans(), st.sampled_from(PRECISIONS), seeds)
def test_each_pair_turns_by_position_times_frequency_and_the_tail_stays(half, tail, interleaved, dtype, seed):
    rng = np.random.default_rng(seed)
    T, H, inv_freq = 4, 3, angles(rng, half)
    wide = np.float64 if dtype == np.float64 else np.float32
    positions, x = rng.integers(0, 100, T), draw(rng, (T, H, 2 * half + tail), dtype)
    cos, sin = rope_cos_sin(positions, inv_freq.astype(wide))
    exact = x.astype(np.float64)
    for t, h, j in np.ndindex(T, H, half):
        first, second = (2 * j, 2 * j + 1) if interleaved else (j, j + half)
        angle = float(wide(positions[t]) * wide(inv_freq[j]))
        x1, x2 = float(x[t, h, first]), float(x[t, h, second])
        exact[t, h, first] = x1 * math.cos(angle) - x2 * math.sin(angle)
        exact[t, h, second] = x2 * math.cos(angle) + x1 * math.sin(angle)
    y = rotary(x, cos, sin, interleaved)
    assert_is_rounding_of(y, exact, 16 * np.abs(x.astype(float)).max(), dtype)
    np.testing.assert_array_equal(y[..., 2 * half :], x[..., 2 * half :])


@given(halves, seeds)
def test_the_two_pairings_are_permutations_of_each_other(half, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 2, 2 * half))
    cos, sin = rope_cos_sin(np.array([0, 5, 77]), angles(rng, half))
    to_interleaved = np.arange(2 * half).reshape(2, half).T.ravel()          # 0, half, 1, half + 1, ...
    np.testing.assert_array_equal(rotary(x[..., to_interleaved], cos, sin, interleaved=True),
                                  rotary(x, cos, sin)[..., to_interleaved])


@both_pairings
def test_norms_are_kept_and_position_zero_changes_nothing(interleaved):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 2, 12))
    cos, sin = rope_cos_sin(np.array([0, 1, 10, 1000, 100000]), angles(rng, 6))
    y = rotary(x, cos, sin, interleaved)
    np.testing.assert_array_equal(y[0], x[0])
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-13)


@both_pairings
@given(query=st.integers(0, 1000), key=st.integers(0, 1000), shift=st.integers(0, 1000), seed=seeds)
def test_a_score_depends_on_the_distance_alone(interleaved, query, key, shift, seed):
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, 1, 1, 8))
    inv_freq = angles(rng, 4)

    def turned(x, position):
        return rotary(x, *rope_cos_sin(np.array([position]), inv_freq), interleaved).ravel()

    near, far = (turned(q, query + s) @ turned(k, key + s) for s in (0, shift))
    assert near == pytest.approx(far, abs=1e-11)


def test_the_attention_factor_scales_both_tables():
    positions, inv_freq = np.arange(4), np.array([1.0, 0.1])
    plain, scaled = rope_cos_sin(positions, inv_freq), rope_cos_sin(positions, inv_freq, attention_factor=1.25)
    np.testing.assert_array_equal(scaled, 1.25 * np.array(plain))
