"""Linear for many rows    y = x W^T, with the epilogues of linear_epilogue.py

x [T, K] bf16; W [N, K] bf16 ([2 N, K] if GATED: all gates, then all ups); y [T, N].
Order of one output: one f32 accumulator, one step of mma.m16n8k16 per 16 products, in ascending k. It depends on K alone,
and it is linear_skinny.py's: a row has the same bits in both.
Flops: 2 T N K; bound by the tensor cores, and by L2: for 64 k a block reads 128 (TILE_T + TILE_N) bytes from it.

A block computes TILE_T x TILE_N sums, each warp an equal part of them: 64 x 64 in the largest tile, where 8 reads of shared
memory feed 32 products of fragments. A ring of STAGES pieces of k, 64 elements each, is filled by asynchronous copies;
fragments are read one step before their use. If GATED, a tile holds eight rows of gates, the eight of their ups, and so on:
one thread gets both sums.
"""

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (bf16, consteval, cp_async_16_or_zero, cp_async_commit, cp_async_wait, cuda, f32, lane_id,
                              mma_m16n8k16_bf16, ptr, shared_address, u16, u32)
from vtlite.cuda.linear_epilogue import write_gated, write_plain
from vtlite.cuda.linear_skinny import MULTIPROCESSORS
from vtlite.cuda.tiles import fragment_a, fragments_b, swizzled

TILE_T, TILE_N = 128, 256
WARPS_T, WARPS_N = 2, 4
STAGES = 3
GATED = False
CONSTANTS = ("TILE_T", "TILE_N", "WARPS_T", "WARPS_N", "STAGES", "GATED")

ROW_BYTES = 128                         # of a row of a stage
STEPS = 4                               # of 16 k, in a stage
CHUNKS = 8                              # of 16 bytes, in a row
PAD = 8                                 # f32 between rows of sums in shared memory: fewer bank conflicts

LARGE, MEDIUM, SMALL = ({"TILE_T": t, "TILE_N": n, "WARPS_T": 2, "WARPS_N": warps, "STAGES": stages}
                        for t, n, warps, stages in ((128, 256, 4, 3), (128, 128, 2, 3), (64, 128, 2, 4)))
COST = 1.0, 1.15, 1.4                   # time per sum of the three, estimated
ONLY_99_KB = ("sm_86", "sm_89", "sm_120", "sm_121")       # of shared memory per block: too few for the large tile's 144


def chosen(T: int, N: int, gated: bool, chip: str) -> dict:
    """The specialisation for a shape."""
    tiles = list(zip((LARGE, MEDIUM, SMALL), COST))
    return soonest(tiles[1:] if chip in ONLY_99_KB else tiles, T, N * (1 + gated)) | {"GATED": gated}


def soonest(tiles: list[tuple[dict, float]], T: int, rows: int) -> dict:
    """Of tiles with their time per sum, the one that is done first, counting whole rounds over the multiprocessors."""
    def time(choice: tuple[dict, float]) -> float:
        tile, cost = choice
        blocks = -(-T // tile["TILE_T"]) * -(-rows // tile["TILE_N"])
        return -(-blocks // MULTIPROCESSORS) * tile["TILE_T"] * tile["TILE_N"] * cost

    return min(tiles, key=time)[0]


@device
def fill(slot, stage, x, weight, T, N, vectors):
    """Start copying a stage to a slot of the ring: x's rows, then W's. What lies past T, N or K becomes zero; `vectors` of 8
    elements make K."""
    tid = u32(cuda.threadIdx.x)
    own, chunk = tid // u32(CHUNKS), tid % u32(CHUNKS)
    at = stage * u32(CHUNKS) + chunk
    for i in consteval(range(TILE_T // (4 * WARPS_T * WARPS_N))):
        row = own + u32(4 * WARPS_T * WARPS_N * i)
        token = u32(cuda.blockIdx.x) * u32(TILE_T) + row
        cp_async_16_or_zero(slot + swizzled(row, chunk, u32(ROW_BYTES)), x, token * vectors + at, (token < T) & (at < vectors))
    for i in consteval(range(TILE_N // (4 * WARPS_T * WARPS_N))):
        row = own + u32(4 * WARPS_T * WARPS_N * i)
        if GATED:
            output = u32(cuda.blockIdx.y) * u32(TILE_N // 2) + (row >> u32(4) << u32(3)) + (row & u32(7))
            source = output + (row >> u32(3) & u32(1)) * N
        else:
            output = u32(cuda.blockIdx.y) * u32(TILE_N) + row
            source = output
        cp_async_16_or_zero(slot + swizzled(u32(TILE_T) + row, chunk, u32(ROW_BYTES)), weight, source * vectors + at,
                            (output < N) & (at < vectors))


@device
def read(a, b, buffer, slot, chunk):
    """This warp's fragments of one step, two chunks deep, into a[buffer], b[buffer]."""
    warp = u32(cuda.threadIdx.x) >> u32(5)
    top = warp // u32(WARPS_N) * u32(TILE_T // WARPS_T)
    left = u32(TILE_T) + warp % u32(WARPS_N) * u32(TILE_N // WARPS_N)
    for i in consteval(range(TILE_T // WARPS_T // 16)):
        a[buffer, i, 0], a[buffer, i, 1], a[buffer, i, 2], a[buffer, i, 3] = \
            fragment_a(slot, top + u32(16 * i), chunk, u32(ROW_BYTES))
    for j in consteval(range(TILE_N // WARPS_N // 16)):
        b[buffer, j, 0], b[buffer, j, 1], b[buffer, j, 2], b[buffer, j, 3] = \
            fragments_b(slot, left + u32(16 * j), chunk, u32(ROW_BYTES))


@device
def multiply(acc, a, b, buffer):
    """One step of every output. acc: by 16 tokens, then by 8 outputs, then the four of a fragment."""
    for i in consteval(range(TILE_T // WARPS_T // 16)):
        for j in consteval(range(TILE_N // WARPS_N // 8)):
            n = consteval(4 * (i * (TILE_N // WARPS_N // 8) + j))
            acc[n], acc[n + 1], acc[n + 2], acc[n + 3] = mma_m16n8k16_bf16(
                a[buffer, i, 0], a[buffer, i, 1], a[buffer, i, 2], a[buffer, i, 3],
                b[buffer, j // 2, j % 2 * 2], b[buffer, j // 2, j % 2 * 2 + 1],
                acc[n], acc[n + 1], acc[n + 2], acc[n + 3])


@device
def put(sums, acc):
    """This warp's sums to the block's array of them, TILE_T rows."""
    lane, warp = u32(lane_id()), u32(cuda.threadIdx.x) >> u32(5)
    top = warp // u32(WARPS_N) * u32(TILE_T // WARPS_T) + (lane >> u32(2))
    left = warp % u32(WARPS_N) * u32(TILE_N // WARPS_N) + u32(2) * (lane & u32(3))
    for i in consteval(range(TILE_T // WARPS_T // 16)):
        for j in consteval(range(TILE_N // WARPS_N // 8)):
            for e in consteval(range(4)):
                at = (top + u32(16 * i + e // 2 * 8)) * u32(TILE_N + PAD) + left + u32(8 * j + e % 2)
                sums[at] = acc[consteval(4 * (i * (TILE_N // WARPS_N // 8) + j) + e)]


@device
def write(sums, y, bias, residual, T, N, flags):
    """The block's outputs from its sums, neighbours by neighbouring threads."""
    pairs = u32(TILE_N // 2 // (1 + GATED))                             # of outputs in a row
    i = u32(cuda.threadIdx.x)
    while i < u32(TILE_T) * pairs:
        row, pair = i // pairs, i % pairs
        token, column = u32(cuda.blockIdx.x) * u32(TILE_T) + row, (u32(cuda.blockIdx.y) * pairs + pair) * u32(2)
        at = row * u32(TILE_N + PAD) + u32(2) * pair
        if GATED:
            at = at + (pair >> u32(2)) * u32(8)                         # eight ups follow eight gates
            write_gated(y, bias, token, column, T, N, flags, sums[at], sums[at + u32(1)], sums[at + u32(8)], sums[at + u32(9)])
        else:
            write_plain(y, bias, residual, token, column, T, N, flags, sums[at], sums[at + u32(1)])
        i = i + u32(32 * WARPS_T * WARPS_N)


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), ptr(bf16), ptr(u16), u32, u32, u32, u32), constants=CONSTANTS,
        threads=lambda WARPS_T, WARPS_N, **_: 32 * WARPS_T * WARPS_N,
        shared=lambda TILE_T, TILE_N, STAGES, **_: STAGES * (TILE_T + TILE_N) * ROW_BYTES,
        prebuild=[tile | {"GATED": gated} for tile in (LARGE, MEDIUM, SMALL) for gated in (False, True)])
def linear_tiled_kernel(x, weight, bias, residual, y, T, N, K, flags):
    ring = shared_address(cuda.shared.array(0, u32))
    slot_bytes = u32((TILE_T + TILE_N) * ROW_BYTES)
    vectors = K >> 3
    stages = (K + 63) >> 6
    for stage in consteval(range(STAGES)):
        if u32(stage) <= stages:                                        # the one past the end is read, not used
            fill(ring + u32(stage) * slot_bytes, u32(stage), x, weight, T, N, vectors)
        cp_async_commit()

    acc = cuda.local.array(consteval(TILE_T * TILE_N // (32 * WARPS_T * WARPS_N)), f32)
    a = cuda.local.array((2, consteval(TILE_T // WARPS_T // 16), 4), u32)
    b = cuda.local.array((2, consteval(TILE_N // WARPS_N // 16), 4), u32)
    for i in consteval(range(TILE_T * TILE_N // (32 * WARPS_T * WARPS_N))):
        acc[i] = f32(0)
    cp_async_wait(consteval(STAGES - 1))
    cuda.syncthreads()
    slot, stage = ring, u32(0)
    read(a, b, 0, slot, u32(0))
    while stage < stages:
        for step in consteval(range(STEPS)):
            if step == STEPS - 1:                                       # all fragments of this slot are read
                cp_async_wait(consteval(STAGES - 2))
                cuda.syncthreads()
                fill(slot, stage + u32(STAGES), x, weight, T, N, vectors)
                cp_async_commit()
                slot = slot + slot_bytes
                if slot == ring + u32(STAGES) * slot_bytes:
                    slot = ring
            read(a, b, (step + 1) % 2, slot, u32(2 * ((step + 1) % STEPS)))
            multiply(acc, a, b, step % 2)
        stage = stage + 1

    cp_async_wait(0)
    cuda.syncthreads()                                                  # the ring's place is free
    sums = cuda.shared.array(0, f32)
    put(sums, acc)
    cuda.syncthreads()
    write(sums, y, bias, residual, T, N, flags)
