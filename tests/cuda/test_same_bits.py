"""Inputs that show a difference of arithmetic: even rows end in what is left of a sum that is exactly 0."""

import numpy as np
import pytest

from vtlite.cuda import sm_90
from vtlite.cuda.device import using
from vtlite.cuda.lang import bf16, f32
from vtlite.cuda.same_bits import ADDED, WEIGHT, X, count_differing, draw
from vtlite.errors import DeviceError

T, N, K = 8, 16, 256


@pytest.fixture
def inputs(device):
    with using(device):
        return [draw(shape, seed, purpose).numpy() for shape, seed, purpose in (((T, K), 1, X), ((N, K), 2, WEIGHT), ((T, N), 3, ADDED))]


def test_even_rows_sum_to_zero_and_get_nothing_added(inputs):
    x, weight, added = (array.astype(np.float64) for array in inputs)
    exact = x @ weight.T
    assert (exact[::2] == 0).all() and (np.abs(exact[1::2]) > 1).mean() > 0.9
    assert (added[::2] == 0).all() and (added[1::2] != 0).all()
    magnitudes = np.abs(x[1::2])
    assert magnitudes.min() < 2**-5 and magnitudes.max() > 2**6


@pytest.mark.parametrize("parts", [(0, 128, 256), (0, 64, 128, 192, 256), (0, 224, 256)], ids=["halves", "slices", "the end apart"])
def test_a_sum_in_parts_differs_in_most_outputs_of_even_rows(inputs, parts):
    x, weight, _ = inputs
    whole = sm_90.linear(x, weight, out_dtype=f32)
    split = sum(sm_90.linear(x[:, a:b], weight[:, a:b], out_dtype=f32) for a, b in zip(parts, parts[1:]))
    assert (whole.astype(bf16) != split.astype(bf16))[::2].mean() > 0.5


def test_one_bit_of_one_element_is_counted(device):
    a = np.ones((8, 24), bf16)
    b = a.copy()
    b.view(np.uint16)[7, 23] ^= 1
    with using(device):
        assert count_differing(device.array(a), device.array(b)).numpy().sum() == 1
        assert count_differing(device.array(a), device.array(a)).numpy().sum() == 0


def test_what_cannot_be_drawn_or_compared_is_refused(device):
    with using(device):
        with pytest.raises(DeviceError, match="columns must be even"):
            draw((2, 3), 1, X)
        with pytest.raises(DeviceError, match="shapes must be equal, of a multiple of 8 elements"):
            count_differing(device.zeros((2, 3), bf16), device.zeros((2, 3), bf16))
