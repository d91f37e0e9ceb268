"""Hopper: mbarriers, bulk and tensor copies to shared memory, and the tensor core of a warpgroup (wgmma). For sm_90a; all but
the last for every chip from sm_90 on.

A pipeline: one thread announces the bytes of a stage (mbarrier_arrive_expect_tx) and starts the bulk copies; whoever needs them
waits for the mbarrier's phase (mbarrier_wait), computes, and arrives at a second mbarrier that frees the stage.

Operands of wgmma lie in shared memory in the 128-byte swizzle: rows of 64 16-bit elements (128 bytes), K contiguous, eight rows
to an atom of 1,024 bytes that starts at a multiple of 1,024; the 16-byte chunk c of row r is at chunk c ^ (r & 7). The k-th
16 elements of the rows are the descriptor of the address plus 32 k bytes (PTX ISA, "Asynchronous warpgroup level matrix
shared memory layout"). Rows of more than 64 elements are several such tiles.
"""

import numpy as np

from vtlite.cuda import tensor_core
from vtlite.cuda.lang.primitive import primitive
from vtlite.cuda.lang.thread import current
from vtlite.cuda.lang.types import f32, u16, u32, u64

ATOM_BYTES = 1024                       # eight rows of 128 bytes
WGMMA_WIDTHS = (8, 16, 32, 64, 128, 256)


@primitive("mbarrier.init.shared.b64 [$address], $count;", inputs="uu", needs="sm_90")
def mbarrier_init(address, count):
    """Make the 8 bytes at a shared address a barrier whose phases end after `count` arrivals (CUDA: mbarrier.init).

    One thread does it; then mbarrier_init_fence() and syncthreads().
    """
    current().mbarrier_init(address, count)


@primitive("fence.mbarrier_init.release.cluster;", needs="sm_90")
def mbarrier_init_fence():
    """Make mbarrier_init visible to copies that will complete on it (CUDA: fence.mbarrier_init)."""


@primitive("fence.proxy.async.shared::cta;", needs="sm_90")
def async_proxy_fence():
    """Make ordinary writes to shared memory visible to bulk copies and wgmma (CUDA: fence.proxy.async)."""


@primitive("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [$address]; }", inputs="u", needs="sm_90")
def mbarrier_arrive(address):
    """Arrive once at a barrier (CUDA: mbarrier.arrive)."""
    current().mbarrier_arrive(address)


@primitive("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [$address], $nbytes; }", inputs="uu", needs="sm_90")
def mbarrier_arrive_expect_tx(address, nbytes):
    """Arrive, and let the phase also wait for so many bytes of bulk copies (CUDA: mbarrier.arrive.expect_tx)."""
    current().mbarrier_expect_tx(address, nbytes)


@primitive("{ .reg .pred done; WAIT: mbarrier.try_wait.parity.shared.b64 done, [$address], $parity; @!done bra WAIT; }",
           inputs="uu", needs="sm_90")
def mbarrier_wait(address, parity):
    """Wait until the phase of this parity (0 for the first, then 1, 0, ...) has ended (CUDA: mbarrier.try_wait.parity, in a loop)."""
    current().mbarrier_wait(address, parity)


@primitive("{ .reg .u64 t; mad.wide.u32 t, $i, 16, $p; "
           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$address], [t], $nbytes, [$mbarrier]; }",
           inputs="upuuu", needs="sm_90")
def bulk_copy(address, p, i, nbytes, mbarrier):
    """Start copying `nbytes` (a multiple of 16) from p + 16 i to shared memory; they count on the mbarrier (CUDA: cp.async.bulk).

    One thread starts it; the copy engine does the rest.
    """
    current().bulk_copy(address, p, i, nbytes, mbarrier, scale=16)


@primitive("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$address], [$map, {$column, $row}], "
           "[$mbarrier];", inputs="utiiu", needs="sm_90")
def tensor_copy(address, map, column, row, mbarrier):
    """Start copying the box of a matrix that begins at (row, column) to shared memory; its bytes, all of them, count on the mbarrier.

    The tensor map (vtlite/cuda/tensor_map.py) says which matrix, how large a box is, and whether it arrives in the 128-byte
    swizzle; then the address must be a multiple of 1,024, else of 128. What lies outside the matrix arrives as zeros.
    row and column are i32 and may be negative (CUDA: cp.async.bulk.tensor.2d).
    """
    current().tensor_copy(address, map, column, row, mbarrier)


@primitive("{ .reg .b32 t; .reg .b64 d; and.b32 t, $address, 0x3ffff; shr.u32 t, t, 4; cvt.u64.u32 d, t; "
           "or.b64 $0, d, 0x4000004000010000; }", outputs="l", inputs="u", pure=True, needs="sm_90a")
def wgmma_descriptor(address):
    """Descriptor, u64, of a matrix in the 128-byte swizzle at a shared address (CUDA: matrix descriptor of wgmma).

    Bits 0-13 address / 16, 16-29 leading offset (not used by this layout: 1), 32-45 stride between atoms / 16 (64), 62-63
    swizzle (1: 128 bytes).
    """
    return u64((int(address) & 0x3FFFF) >> 4 | 0x4000004000010000)


@primitive("wgmma.fence.sync.aligned;", needs="sm_90a")
def wgmma_fence():
    """Order earlier writes of the accumulators before the wgmma that follow (CUDA: wgmma.fence)."""


@primitive("wgmma.commit_group.sync.aligned;", needs="sm_90a")
def wgmma_commit():
    """Close the group of wgmma started so far (CUDA: wgmma.commit_group)."""
    current().wgmma_commit()


@primitive("wgmma.wait_group.sync.aligned $groups;", inputs="n", needs="sm_90a")
def wgmma_wait(groups):
    """Wait until at most `groups` (a literal) of the newest groups are unfinished (CUDA: wgmma.wait_group)."""
    current().wgmma_wait(groups)


def _wgmma(n: int):
    """The primitive for n columns."""

    def function(acc, a, b, accumulate):
        thread = current()
        lane, warp = int(thread.laneid), int(thread.warpid) & 3
        rows = 16 * warp + lane // 4 + np.array([0, 8])
        columns = 8 * np.arange(n // 8)[:, None] + 2 * (lane % 4) + np.arange(2)                # [n/8, 2]
        old = np.zeros((n // 8, 2, 2), f32)                                                     # column block, row, column
        if accumulate:
            old = np.array(thread.wgmma_accumulator(acc, n // 2), f32).reshape(old.shape)
        old = old.transpose(1, 0, 2).reshape(2, -1)
        new = tensor_core.chain(_rows(thread, a, rows), _rows(thread, b, columns.reshape(-1)), old)
        thread.wgmma_result(acc, new.reshape(2, n // 8, 2).transpose(1, 0, 2).reshape(-1))

    function.__name__ = function.__qualname__ = f"wgmma_m64n{n}k16_bf16"
    function.__doc__ = f"""D = A B (+ D if `accumulate`), asynchronously: A [64, 16], B [{n}, 16] bf16 by descriptor, D [64, {n}] f32.

    All 128 threads of a warpgroup call together. `acc` is a local array of {n // 2} f32: thread 32 w + 4 g + q holds of column block
    j D[16 w + g, 8 j + 2 q], D[16 w + g, 8 j + 2 q + 1], and the same of row 16 w + g + 8, as acc[4 j .. 4 j + 3]. It may
    be read after wgmma_wait (CUDA: wgmma.mma_async.m64n{n}k16.f32.bf16.bf16)."""
    return primitive(f"{{ .reg .pred q; setp.ne.u32 q, $accumulate, 0; wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 "
                     "$acc, $a, $b, q, 1, 1, 0, 0; }", inputs=f"{n // 2}llb", needs="sm_90a")(function)


def _rows(thread, descriptor, rows: np.ndarray) -> np.ndarray:
    """[rows, 16] bf16 patterns of a matrix in shared memory, as wgmma finds them."""
    start = (int(descriptor) & 0x3FFF) << 4
    out = np.empty((len(rows), 16), u16)
    for i, row in enumerate(rows):
        for half in range(2):
            address = start + int(row) // 8 * ATOM_BYTES + int(row) % 8 * 128 + 16 * half
            swizzled = address ^ (address >> 7 & 7) << 4
            out[i, 8 * half : 8 * half + 8] = thread.load_shared(u32(swizzled), u16, 8)
    return out


wgmma_m64n8k16_bf16, wgmma_m64n16k16_bf16, wgmma_m64n32k16_bf16, wgmma_m64n64k16_bf16, wgmma_m64n128k16_bf16, \
    wgmma_m64n256k16_bf16 = map(_wgmma, WGMMA_WIDTHS)
