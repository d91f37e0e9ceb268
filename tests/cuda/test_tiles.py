"""Fragments read from a swizzled tile make the products that the tile's rows have."""

import numpy as np
import pytest

from vtlite.cuda import tensor_core
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import (bf16, cp_async_16, cp_async_commit, cp_async_wait, cuda, f32, lane_id, mma_m16n8k16_bf16, ptr,
                              shared_address, u32)
from vtlite.cuda.tiles import fragment_a, fragments_b, fragments_b_transposed, fragments_two_steps, swizzled

ROW_BYTES, CHUNKS = 256, 16             # rows of 128 elements
WAY = 0                                 # which function reads the 8-column operands


@kernel((ptr(bf16), ptr(bf16), ptr(f32)), threads=32, constants=("WAY",), prebuild=())
def product_kernel(a, b, d):
    """d [16, 16] = a [16, 32 of 128] b [16, 32 of 128]^T from chunk 4 on; way 1: only its first 8 columns; way 2: b's rows are k."""
    tile_a, tile_b = cuda.shared.array(1024, u32), cuda.shared.array(2048, u32)
    a_address, b_address = shared_address(tile_a), shared_address(tile_b)
    lane = u32(lane_id())
    for i in range(32):
        row, chunk = u32(i), lane & u32(15)
        if lane < 16 and row < 16:
            cp_async_16(a_address + swizzled(row, chunk, u32(ROW_BYTES)), a, row * CHUNKS + chunk)
        if lane < 16:
            cp_async_16(b_address + swizzled(row, chunk, u32(ROW_BYTES)), b, row * CHUNKS + chunk)
    cp_async_commit()
    cp_async_wait(0)
    cuda.syncwarp()
    c0, c1, c2, c3 = f32(0), f32(0), f32(0), f32(0)
    e0, e1, e2, e3 = f32(0), f32(0), f32(0), f32(0)
    w0, w1, w2, w3 = fragments_two_steps(b_address, lane & u32(7), u32(4), u32(ROW_BYTES))
    for step in range(2):
        a0, a1, a2, a3 = fragment_a(a_address, u32(0), u32(4) + u32(2 * step), u32(ROW_BYTES))
        if WAY == 0:
            b0, b1, b2, b3 = fragments_b(b_address, u32(0), u32(4) + u32(2 * step), u32(ROW_BYTES))
        elif WAY == 1:
            b0, b1, b2, b3 = w0, w1, w0, w1
            w0, w1 = w2, w3
        else:
            b0, b1, b2, b3 = fragments_b_transposed(b_address, u32(16 * step), u32(4), u32(ROW_BYTES))
        c0, c1, c2, c3 = mma_m16n8k16_bf16(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)
        e0, e1, e2, e3 = mma_m16n8k16_bf16(a0, a1, a2, a3, b2, b3, e0, e1, e2, e3)
    at = (lane >> 2) * 16 + 2 * (lane & 3)
    d[at], d[at + 1], d[at + 128], d[at + 129] = c0, c1, c2, c3
    d[at + 8], d[at + 9], d[at + 136], d[at + 137] = e0, e1, e2, e3


@pytest.mark.parametrize("way", range(3))
def test_fragments_make_the_products_of_the_rows(way):
    device, rng = EmulatedDevice(), np.random.default_rng(way)
    a, b = rng.standard_normal((16, 128)).astype(bf16), rng.standard_normal((32, 128)).astype(bf16)
    d = device.zeros((16, 16), f32)
    device.launch(product_kernel.specialize(WAY=way), 1, device.array(a), device.array(b), d)
    columns = [b[:16, 32:64], b[:8, 32:64], b[:, 32:48].T][way]
    expected = tensor_core.chain(a[:, 32:64].view(np.uint16), np.ascontiguousarray(columns).view(np.uint16),
                                 np.zeros((16, len(columns)), f32))
    assert np.array_equal(d.numpy()[:, : len(columns)], expected)
