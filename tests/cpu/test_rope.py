"""Rotation on a CPU against its definition."""

import numpy as np
import pytest

from vtlite import cpu, reference


@pytest.mark.parametrize("interleaved", (False, True))
@pytest.mark.parametrize("rotated", (16, 48, 64))
def test_close_to_the_definition(rng, rotated, interleaved):
    for T in (1, 3, 63, 500):
        x = rng.standard_normal((T, 3, 64), np.float32)
        cos, sin = cpu.rope_cos_sin(np.arange(T) + 1000, (1e4 ** (-np.arange(0, rotated, 2) / rotated)).astype(np.float32))
        truth = reference.rotary(x.astype(np.float64), cos, sin, interleaved)
        found = cpu.rotary(x, cos, sin, interleaved)
        assert np.abs(found - truth).max() < 4 * 2.0**-24 * np.abs(x).max()
        assert np.array_equal(cpu.rotary(x[-1:], cos[-1:], sin[-1:], interleaved)[0], found[-1])


@pytest.mark.parametrize("theta", (1e4, 1e6))
def test_angles_are_rounded_once_and_positions_are_exact(theta):
    positions = np.concatenate([np.arange(2000), np.arange(0, 1 << 20, 997)])
    inv_freq = (theta ** (-np.arange(32) / 32)).astype(np.float32)
    angle = (positions.astype(np.float32)[:, None] * inv_freq).astype(np.float64)
    for found, truth in zip(cpu.rope_cos_sin(positions, inv_freq), (np.cos(angle), np.sin(angle)), strict=True):
        assert np.abs(found - truth).max() < 2 * 2.0**-24


def test_attention_factor_multiplies_both(rng):
    inv_freq = np.float32([1.0, 0.1])
    plain, scaled = cpu.rope_cos_sin(np.arange(5), inv_freq), cpu.rope_cos_sin(np.arange(5), inv_freq, 0.5)
    assert all(np.array_equal(p * np.float32(0.5), s) for p, s in zip(plain, scaled))


def test_parts_of_a_wider_row_are_read_in_place(rng):
    wide = rng.standard_normal((4, 24), np.float32)
    cos, sin = cpu.rope_cos_sin(np.arange(4), np.float32([1.0, 0.5, 0.25, 0.125]))
    part = wide[:, 8:24].reshape(4, 2, 8)
    assert np.array_equal(cpu.rotary(part, cos, sin), cpu.rotary(part.copy(), cos, sin))
