"""Embedding: ids out of range never fault, and are reported when the host next looks."""

import numpy as np
import pytest

from vtlite.cuda.embed import check_ids, embedding, fill_drawn
from vtlite.cuda.lang import bf16
from vtlite.errors import DeviceError


def test_ids_out_of_range_are_clamped_and_reported_once(device):
    weight = np.arange(5 * 8, dtype=np.float32).reshape(5, 8).astype(bf16)
    on_device = device.array(weight)
    y = embedding(device.array(np.array([4, -1, 1, 5, 1 << 40])), on_device)
    assert np.array_equal(y.numpy(), weight[[4, 0, 1, 4, 4]])
    with pytest.raises(DeviceError, match=r"input_ids\[4\]"):
        check_ids()
    embedding(device.array(np.array([0, 4])), on_device)
    check_ids()


def test_other_types_are_refused(device):
    with pytest.raises(DeviceError, match="bfloat16 rows"):
        embedding(device.array(np.zeros(1, np.int64)), device.array(np.zeros((2, 12), bf16)))


def test_drawn_tokens_take_the_places_that_refer_to_them(device):
    input_ids = device.array(np.array([5, -1, 0, -3, -2], np.int64))
    fill_drawn(input_ids, device.array(np.array([70, 71, 72], np.int64)))
    assert input_ids.numpy().tolist() == [5, 70, 0, 72, 71]
