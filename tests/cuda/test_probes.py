"""The tensor core of the device that runs has the arithmetic that vtlite.cuda.tensor_core describes."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

from vtlite.cuda import probes, tensor_core


def random(rng, *shape, spread):
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)).astype(bfloat16)


def chain(a, b):
    return tensor_core.chain(a.view(np.uint16), b.view(np.uint16), np.zeros((len(a), len(b)), np.float32))


@pytest.mark.parametrize("depth, spread", [(16, 0), (48, 8)])
def test_mma_adds_in_ascending_steps_of_sixteen(device, depth, spread):
    rng = np.random.default_rng(depth)
    a, b = random(rng, 16, depth, spread=spread), random(rng, 8, depth, spread=spread)
    got = probes.mma_chain(device.array(a), device.array(b)).numpy()
    np.testing.assert_array_equal(got.view(np.uint32), chain(a, b).view(np.uint32))


def test_wgmma_has_the_bits_of_mma(device):
    rng = np.random.default_rng(1)
    a, b = random(rng, 64, 64, spread=4), random(rng, 16, 64, spread=4)
    got = probes.wgmma_chain(device.array(probes.swizzled(a)), device.array(probes.swizzled(b))).numpy()
    np.testing.assert_array_equal(got.view(np.uint32), chain(a, b).view(np.uint32))
