"""Tensor maps: what they refuse, and copies by them that a kernel got wrong."""

import numpy as np
import pytest

from vtlite.cuda import emulator, probes
from vtlite.cuda.device import using
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.emulated_faults import Divergence, Misaligned, Race, UninitialisedRead
from vtlite.cuda.lang import (bf16, cuda, mbarrier_arrive_expect_tx, mbarrier_init, mbarrier_wait, shared_address, tensor_copy, u32, u64)
from vtlite.cuda.tensor_map import TensorMap
from vtlite.errors import DeviceError

DEVICE = EmulatedDevice(races=True)


def matrix(rows=40, columns=64, dtype=bf16):
    return DEVICE.array(np.arange(rows * columns).reshape(rows, columns).astype(dtype))


@pytest.mark.parametrize("array, box, swizzled, sentence", [
    (matrix().reshape(-1), (8, 8), False, "takes a matrix with contiguous rows"),
    (matrix()[:, ::2], (8, 8), False, r"takes a matrix with contiguous rows of bfloat16, .* with strides \[128, 4\]"),
    (matrix(dtype=np.int64), (8, 8), False, "contiguous rows of bfloat16, float16"),
    (matrix(columns=60), (8, 8), False, "are 120 bytes apart and begin 0 bytes past one"),
    (matrix()[:, 4:], (8, 8), False, "are 128 bytes apart and begin 8 bytes past one"),
    (matrix(), (0, 8), False, "a box has 1 to 256 rows and columns"),
    (matrix(), (8, 257), False, "a box has 1 to 256 rows and columns"),
    (matrix(), (8, 12), False, "rows of a multiple of 16 bytes"),
    (matrix(), (8, 32), True, r"the rows of a swizzled box have 128 bytes; those of \(8, 32\) of bfloat16 have 64: take 64 columns"),
])
def test_what_the_copy_engine_cannot_take_is_refused(array, box, swizzled, sentence):
    with pytest.raises(DeviceError, match=sentence):
        TensorMap(array, box, swizzled)


def test_a_kernel_wants_a_tensor_map_and_not_an_array():
    x, y = matrix(), DEVICE.zeros((256,), np.uint32)
    with using(DEVICE), pytest.raises(DeviceError, match="matrix: tensor_map takes a TensorMap, found DeviceArray"):
        DEVICE.launch(probes.copied_box_kernel.specialize(), 1, x, y, 0, 0, 256)


def copy(expected=1024, wait=True, offset=0, swizzled=True):
    """Run a kernel that copies one box of 1,024 bytes and reads its first words; the arguments are mistakes to make."""
    def kernel(tiles, out):
        box, barrier = cuda.shared.array(1024, u32), cuda.shared.array(1, u64)
        tid, arrived = cuda.threadIdx.x, shared_address(barrier)
        if tid == 0:
            mbarrier_init(arrived, 1)
        cuda.syncthreads()
        if tid == 0:
            mbarrier_arrive_expect_tx(arrived, expected)
            tensor_copy(shared_address(box) + u32(offset), tiles, 0, 0, arrived)
        cuda.syncthreads()
        if wait:
            mbarrier_wait(arrived, 0)
        out[tid] = box[tid + offset // 4]

    tiles = TensorMap(matrix(), (8, 64), swizzled)
    out = DEVICE.zeros((32,), np.uint32)
    emulator.launch(kernel, 1, 32, (tiles, out.pointer(np.uint32)))
    return out.numpy()


def test_a_copy_that_is_waited_for_is_there():
    assert np.array_equal(copy().view(bf16), np.arange(64).astype(bf16))


def test_a_missing_wait_shows_with_the_line_of_the_copy():
    with pytest.raises(UninitialisedRead, match=r"the target of the copy that .* thread \(0, 0, 0\) started at tests/cuda/test_tensor_map.py:\d+ and "
                                                r"nobody has waited for"):
        copy(wait=False)


@pytest.mark.parametrize("expected", [512, 2048])
def test_other_bytes_than_the_box_has_never_arrive(expected):
    with pytest.raises(Divergence, match=r"wait at mbarrier \(parity 0\)"):
        copy(expected=expected)


def test_a_swizzled_box_has_its_place_and_another_a_looser_one():
    with pytest.raises(Misaligned, match="should be aligned to 1024"):
        copy(offset=128)
    assert np.array_equal(copy(offset=128, swizzled=False).view(bf16), np.arange(64).astype(bf16))


def test_a_second_copy_into_a_box_that_nobody_waited_for_is_a_race():
    def kernel(tiles):
        box, barrier = cuda.shared.array(256, u32), cuda.shared.array(1, u64)
        arrived = shared_address(barrier)
        mbarrier_init(arrived, 1)
        for row in (0, 8):
            mbarrier_arrive_expect_tx(arrived, 1024)
            tensor_copy(shared_address(box), tiles, 0, row, arrived)

    with pytest.raises(Race, match=r"asynchronous copy into .* bytes 0\.\.1023 while the one that .* thread \(0, 0, 0\) .* fills them: nobody has waited"):
        emulator.launch(kernel, 1, 1, (TensorMap(matrix(), (8, 64), True),))


def test_a_thread_that_has_not_waited_has_not_what_another_waited_for():
    def kernel(tiles, out):
        box, barrier = cuda.shared.array(256, u32), cuda.shared.array(1, u64)
        tid, arrived = cuda.threadIdx.x, shared_address(barrier)
        if tid == 0:
            mbarrier_init(arrived, 1)
        cuda.syncthreads()
        if tid == 0:
            mbarrier_arrive_expect_tx(arrived, 1024)
            tensor_copy(shared_address(box), tiles, 0, 0, arrived)
            mbarrier_wait(arrived, 0)
        out[tid] = box[tid]

    with pytest.raises((Race, UninitialisedRead)):
        emulator.launch(kernel, 1, 2, (TensorMap(matrix(), (8, 64), True), DEVICE.zeros((2,), np.uint32).pointer(np.uint32)))


def test_a_copy_races_with_a_write_of_what_it_reads():
    def kernel(tiles, x):
        box, barrier = cuda.shared.array(256, u32), cuda.shared.array(1, u64)
        arrived = shared_address(barrier)
        if cuda.threadIdx.x == 0:
            mbarrier_init(arrived, 1)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            mbarrier_arrive_expect_tx(arrived, 1024)
            tensor_copy(shared_address(box), tiles, 0, 0, arrived)
        else:
            x[0] = u32(1)

    x = matrix()
    with pytest.raises(Race, match=r"(read|write) of array .* races with the (write|read) by"):
        emulator.launch(kernel, 1, 2, (TensorMap(x, (8, 64), True), x.view(np.uint32).pointer(np.uint32)))
