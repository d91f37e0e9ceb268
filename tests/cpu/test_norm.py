"""RMSNorm on a CPU against its definition, and one value per row in any company."""

import ml_dtypes
import numpy as np
import pytest

from vtlite import cpu, reference


@pytest.mark.parametrize("weight_type", (ml_dtypes.bfloat16, np.float16, np.float32))
@pytest.mark.parametrize("D", (1, 7, 8, 63, 576, 1536))
def test_error_is_a_few_roundings(rng, D, weight_type):
    for T in (1, 3, 63, 500):
        x, w = rng.standard_normal((T, D), np.float32), rng.standard_normal(D).astype(weight_type)
        truth = reference.rms_norm(x.astype(np.float64), w, 1e-5)
        found = cpu.rms_norm(x, w, 1e-5)
        assert (np.abs(found - truth) <= 6 * 2.0**-24 * np.abs(truth)).all()
        assert np.array_equal(cpu.rms_norm(x[-1:], w, 1e-5)[0], found[-1])


def test_heads_are_rows(rng):
    x, w = rng.standard_normal((3, 4, 16), np.float32), np.ones(16, np.float32)
    assert np.array_equal(cpu.rms_norm(x, w, 1e-6)[2, 1], cpu.rms_norm(x[2, 1], w, 1e-6))
    assert np.array_equal(cpu.rms_norm(x[:, 1:3], w, 1e-6), cpu.rms_norm(x, w, 1e-6)[:, 1:3])


def test_variants(rng):
    x, z = rng.standard_normal((2, 5, 33), np.float32)
    w = rng.standard_normal(33).astype(ml_dtypes.bfloat16)
    wide, wide_z = x.astype(np.float64), z.astype(np.float64)
    assert np.allclose(cpu.rms_norm(x, w, 1e-5, True), reference.rms_norm(wide, w, 1e-5, True), rtol=1e-6)
    y, h = cpu.add_rms_norm(x, z, w, 1e-5)
    assert np.array_equal(h, x + z) and np.array_equal(y, cpu.rms_norm(x + z, w, 1e-5))
    assert np.allclose(cpu.gated_rms_norm(x, z, w, 1e-5), reference.gated_rms_norm(wide, wide_z, w, 1e-5), rtol=1e-6)
