"""Gated activations on a CPU against their definitions."""

import numpy as np

from vtlite import cpu, reference


def test_error_is_a_few_roundings(rng):
    for T in (1, 3, 63, 500):
        for F in (1, 7, 63, 1536):
            x = 10 * rng.standard_normal((T, 2 * F), np.float32)
            truth = reference.silu_and_mul(x.astype(np.float64))
            found = cpu.silu_and_mul(x)
            assert (np.abs(found - truth) <= 8 * 2.0**-24 * np.abs(truth) + 1e-44).all()
            assert np.array_equal(cpu.silu_and_mul(x[-1:])[0], found[-1])


def test_far_ends():
    x = np.float32([[-200, 200, np.nan, 1, 1, 1]])
    assert np.array_equal(cpu.silu_and_mul(x), np.float32([[-0.0, 200, np.nan]]), equal_nan=True)


def test_gelu_and_sigmoid(rng):
    x = 2 * rng.standard_normal((7, 134), np.float32)
    assert np.allclose(cpu.gelu_tanh_and_mul(x), reference.gelu_tanh_and_mul(x.astype(np.float64)), rtol=1e-5, atol=1e-9)
    gate = x[:, ::-1]
    truth = reference.sigmoid_gate(x.astype(np.float64), gate.astype(np.float64))
    assert np.allclose(cpu.sigmoid_gate(x, gate), truth, rtol=5e-7)
