"""The emulated tensor core gives the bits of a Hopper GPU.

tests/golden/mma_h200.npz holds results of mma.sync.m16n8k16 (bf16 x bf16 + f32) recorded on an NVIDIA H200: for 13 sets of
inputs, 56 rows of A, 56 of B, and the chain of K / 16 steps for every pair. Names: exponent spread 0, 4, 10, 20 (n, w4,
w10, w20) and K; t: one tiny product beside a product of 1.
"""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from vtlite.cuda import emulator, tensor_core
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.lang.memory import shared_address
from vtlite.cuda.lang.tensor_core import ldmatrix_x2, ldmatrix_x4, mma_m16n8k16_bf16, stmatrix_x4
from vtlite.cuda.lang.thread import cuda, lane_id
from vtlite.cuda.lang.types import f32, u16, u32

RECORDED = np.load(Path(__file__).parents[1] / "golden" / "mma_h200.npz")
SETS = sorted(name[:-2] for name in RECORDED if name.endswith("_A"))


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint32)


@pytest.mark.parametrize("name", SETS)
def test_chains_equal_the_recorded_bits(name):
    a, b, c = (RECORDED[f"{name}_{part}"] for part in "ABC")
    assert np.array_equal(bits(tensor_core.chain(a, b, np.zeros_like(c))), bits(c))


def test_a_chain_goes_on_from_its_accumulator():
    a, b, c = (RECORDED[f"w10_64_{part}"] for part in "ABC")
    half = tensor_core.chain(a[:, :32], b[:, :32], np.zeros_like(c))
    assert np.array_equal(bits(tensor_core.chain(a[:, 32:], b[:, 32:], half)), bits(c))


def test_a_result_depends_on_its_own_row_alone(monkeypatch):
    a, b, c = (RECORDED[f"w20_64_{part}"] for part in "ABC")
    monkeypatch.setattr(tensor_core, "PRODUCTS_AT_ONCE", 1)
    assert np.array_equal(bits(tensor_core.chain(a, b, np.zeros_like(c))), bits(c))


def test_k_that_is_no_multiple_of_a_step_is_refused():
    with pytest.raises(ValueError, match="a multiple of 16; found 24 and 24"):
        tensor_core.chain(np.zeros((1, 24), np.uint16), np.zeros((1, 24), np.uint16), np.zeros((1, 1), np.float32))


@pytest.mark.parametrize("kind, dtype", [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
def test_small_integers_are_exact(kind, dtype):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 9, (5, 48)), rng.integers(-8, 9, (7, 48))
    c = rng.integers(-100, 101, (5, 7)).astype(np.float32)
    out = tensor_core.chain(a.astype(dtype).view(np.uint16), b.astype(dtype).view(np.uint16), c, kind)
    assert np.array_equal(out, a @ b.T + c)


def test_infinities_and_nan_pass_as_in_addition():
    a = np.array([[np.inf, 1], [np.inf, np.inf], [np.nan, 1], [3e38, 3e38]], np.float32).repeat(8, axis=1)
    b = np.array([[1, -1], [1, 1]], np.float32).repeat(8, axis=1)
    as_bits = [x.astype(ml_dtypes.bfloat16).view(np.uint16) for x in (a, b)]
    out = tensor_core.chain(*as_bits, np.zeros((4, 2), np.float32))
    assert np.array_equal(out, [[np.inf, np.inf], [np.nan, np.inf], [np.nan, np.nan], [0, np.inf]], equal_nan=True)


def test_a_warp_computes_what_the_chain_computes():
    """Rows come by ldmatrix, go through mma on fragments, and leave by the fragment layout of the accumulator."""
    def kernel(a, b, out):
        lane = u32(lane_id())
        tile_a, tile_b = cuda.shared.array((16, 16), u16), cuda.shared.array((8, 16), u16)
        for i in range(8):
            tile_a[lane // 2, lane % 2 * 8 + i] = a[lane * 8 + i]
            if lane < 16:
                tile_b[lane // 2, lane % 2 * 8 + i] = b[lane * 8 + i]
        cuda.syncwarp()
        fragment_a = ldmatrix_x4(shared_address(tile_a) + (lane % 16) * 32 + lane // 16 * 16)
        fragment_b = ldmatrix_x2(shared_address(tile_b) + (lane % 8) * 32 + lane // 8 % 2 * 16)
        zero = f32(0)
        d = mma_m16n8k16_bf16(*fragment_a, *fragment_b, zero, zero, zero, zero)
        row, column = lane // 4, lane % 4 * 2
        for i in range(4):
            out[(row + i // 2 * 8) * 8 + column + i % 2] = d[i]

    a, b, c = (RECORDED[f"w4_16_{part}"] for part in "ABC")
    device = EmulatedDevice()
    out = device.empty((16, 8), np.float32)
    arrays = device.array(a[:16]), device.array(b[:8]), out
    emulator.launch(kernel, 1, 32, tuple(x.pointer(x.dtype) for x in arrays))
    assert np.array_equal(bits(out.numpy()), bits(c[:16, :8].copy()))


@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix_undoes_ldmatrix(transposed):
    def kernel(x, y):
        lane = u32(lane_id())
        source, target = cuda.shared.array((32, 8), u16), cuda.shared.array((32, 8), u16)
        for i in range(8):
            source[lane, i] = x[lane * 8 + i]
        cuda.syncwarp()
        matrices = emulator.current().ldmatrix(shared_address(source) + lane * 16, 4, transposed)
        if transposed:
            emulator.current().stmatrix(shared_address(target) + lane * 16, matrices, transposed)
        else:
            stmatrix_x4(shared_address(target) + lane * 16, *matrices)
        cuda.syncwarp()
        for i in range(8):
            y[lane * 8 + i] = target[lane, i]

    device = EmulatedDevice()
    x, y = device.array(np.arange(256, dtype=np.uint16)), device.empty(256, np.uint16)
    emulator.launch(kernel, 1, 32, (x.pointer(np.uint16), y.pointer(np.uint16)))
    assert np.array_equal(y.numpy(), x.numpy())
