"""Probes of the tensor core: plain chains of steps in ascending k, whose f32 results tell a chip's arithmetic bit for bit; and of
the copies that feed it.

mma_chain    D [16, 8] = A [16, K] B [8, K]^T     by mma.m16n8k16, any chip
wgmma_chain  D [64, 16] = A [64, 64] B [16, 64]^T by wgmma.m64n16k16, sm_90a
copied_box   the bytes of a box of a matrix in shared memory, as a tensor copy leaves them, sm_90a

A, B bf16; D f32. On Hopper both equal tensor_core.chain (vtlite/cuda/tensor_core.py); linear layers may mix the two because of
it. On another chip run tests/cuda/test_probes.py first.
"""

import numpy as np

from vtlite.cuda.device import current
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import (async_proxy_fence, bf16, bulk_copy, consteval, cuda, f32, i32, lane_id, load_u32,
                              mbarrier_arrive_expect_tx, mbarrier_init, mbarrier_init_fence, mbarrier_wait, mma_m16n8k16_bf16, ptr,
                              shared_address, tensor_copy, tensor_map, u32, u64, wgmma_commit, wgmma_descriptor, wgmma_fence,
                              wgmma_m64n16k16_bf16, wgmma_wait)
from vtlite.cuda.tensor_map import TensorMap

TILE_K = 64                             # elements of a 128-byte row
ROWS, COLUMNS = 64, 16                  # of wgmma_chain's D
BOX_BYTES = 1024
A_BYTES, B_BYTES = 2 * ROWS * TILE_K, 2 * COLUMNS * TILE_K
SPECS = ()                              # the definition is a chip's own arithmetic: tests/cuda/test_probes.py


@kernel((ptr(bf16), ptr(bf16), ptr(f32), u32), threads=32)
def mma_chain_kernel(a, b, d, pairs):
    lane = u32(lane_id())
    g, q = lane >> 2, lane & 3                                          # PTX's groupID and threadID_in_group
    top, bottom, column = g * pairs + q, (g + 8) * pairs + q, g * pairs + q
    c0, c1, c2, c3 = f32(0), f32(0), f32(0), f32(0)
    k = u32(0)
    while k < pairs:
        c0, c1, c2, c3 = mma_m16n8k16_bf16(load_u32(a, top + k), load_u32(a, bottom + k), load_u32(a, top + k + 4),
                                           load_u32(a, bottom + k + 4), load_u32(b, column + k), load_u32(b, column + k + 4),
                                           c0, c1, c2, c3)
        k = k + 8
    d[g * 8 + 2 * q], d[g * 8 + 2 * q + 1] = c0, c1
    d[(g + 8) * 8 + 2 * q], d[(g + 8) * 8 + 2 * q + 1] = c2, c3


@kernel((ptr(bf16), ptr(bf16), ptr(f32)), threads=128, needs="sm_90a")
def wgmma_chain_kernel(a, b, d):
    tile_a = cuda.shared.array(consteval(A_BYTES // 4), u32)
    tile_b = cuda.shared.array(consteval(B_BYTES // 4), u32)
    barrier = cuda.shared.array(1, u64)
    tid = u32(cuda.threadIdx.x)
    a_address, b_address, arrived = shared_address(tile_a), shared_address(tile_b), shared_address(barrier)
    if tid == 0:
        mbarrier_init(arrived, 1)
        mbarrier_init_fence()
        async_proxy_fence()
    cuda.syncthreads()
    if tid == 0:
        mbarrier_arrive_expect_tx(arrived, A_BYTES + B_BYTES)
        bulk_copy(a_address, a, 0, A_BYTES, arrived)
        bulk_copy(b_address, b, 0, B_BYTES, arrived)
    mbarrier_wait(arrived, 0)
    acc = cuda.local.array(consteval(COLUMNS // 2), f32)
    for i in consteval(range(COLUMNS // 2)):
        acc[i] = f32(0)
    wgmma_fence()
    for k in consteval(range(TILE_K // 16)):
        wgmma_m64n16k16_bf16(acc, wgmma_descriptor(a_address + u32(32 * k)), wgmma_descriptor(b_address + u32(32 * k)), True)
    wgmma_commit()
    wgmma_wait(0)
    row, column = 16 * (tid >> 5) + ((tid & 31) >> 2), 2 * (tid & 3)
    for j in consteval(range(COLUMNS // 8)):
        for i in consteval(range(4)):
            d[(row + u32(8 * (i // 2))) * COLUMNS + column + u32(8 * j + i % 2)] = acc[4 * j + i]


@kernel((tensor_map, ptr(u32), i32, i32, u32), threads=128, constants=("BOX_BYTES",), needs="sm_90a",
        prebuild=[{"BOX_BYTES": nbytes} for nbytes in (1024, 2048)])
def copied_box_kernel(matrix, y, row, column, num_words):
    box = cuda.shared.array(consteval(BOX_BYTES // 4), u32)
    barrier = cuda.shared.array(1, u64)
    tid, arrived = u32(cuda.threadIdx.x), shared_address(barrier)
    if tid == 0:
        mbarrier_init(arrived, 1)
        mbarrier_init_fence()
    cuda.syncthreads()
    if tid == 0:
        mbarrier_arrive_expect_tx(arrived, BOX_BYTES)
        tensor_copy(shared_address(box), matrix, column, row, arrived)
    mbarrier_wait(arrived, 0)
    i = tid
    while i < num_words:
        y[i] = box[i]
        i = i + 128


def mma_chain(a, b):
    """a [16, K], b [8, K] bf16 on the device, K a multiple of 16 -> [16, 8] f32."""
    d = current().empty((16, 8), f32)
    current().launch(mma_chain_kernel.specialize(), 1, a, b, d, a.shape[1] // 2)
    return d


def wgmma_chain(a, b):
    """a [64, 64], b [16, 64] bf16 on the device, both in the order of `swizzled` -> [64, 16] f32."""
    d = current().empty((ROWS, COLUMNS), f32)
    current().launch(wgmma_chain_kernel.specialize(), 1, a, b, d)
    return d


def copied_box(matrix: TensorMap, row: int, column: int):
    """-> [nbytes] u8: the box from (row, column) on."""
    y = current().empty((matrix.nbytes // 4,), u32)
    current().launch(copied_box_kernel.specialize(BOX_BYTES=matrix.nbytes), 1, matrix, y, row, column, y.size)
    return y.view(np.uint8)


def swizzled(x: np.ndarray) -> np.ndarray:
    """[rows, 64] 16-bit elements with the 16-byte chunk c of row r moved to chunk c ^ (r & 7), as wgmma reads them."""
    rows, chunks = np.arange(len(x))[:, None], np.arange(8)[None]
    out = np.empty((len(x), 8, 8), x.dtype)
    out[rows, chunks ^ (rows & 7)] = x.reshape(-1, 8, 8)
    return out.reshape(x.shape)
