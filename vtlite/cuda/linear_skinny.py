"""Linear for few rows    y = x W^T, with the epilogues of linear_epilogue.py

x [T, K] bf16, T <= ROWS; W [N, K] bf16 ([2 N, K] if CHAINS is 2: all gates, then all ups); y [T, N].
Order of one output: one f32 accumulator, one step of mma.m16n8k16 per 16 products, in ascending k. It depends on K alone.
Bytes: 2 N K + 2 T (K + N); bound by the bytes of W, each read once.

x is the 16-row operand and W the 8-column one, so N / 8 independent chains keep the GPU busy although no chain may be split.
A warp owns the chains of 8 outputs. The block keeps a ring of STAGES pieces of k in shared memory: all its rows of W, and x.
A chain's step takes about 33 cycles, 5.3 us for K = 5120; everything else is arranged to hide behind it or behind memory:
 * STAGES - 1 pieces are in flight at any time. A multiprocessor's share of 4.8 TB/s is 36 bytes per ns; at 700 ns that is
   25 KB that must be on their way, the ring holds about three times as much.
 * While the grids before this one end, L2 fetches the first pieces.
 * Fragments are read two pairs of steps before their use, so that no step waits for shared memory.
"""

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (bf16, consteval, cp_async_16_or_zero, cp_async_commit, cp_async_wait, cuda, f32, lane_id,
                              mma_m16n8k16_bf16, prefetch_l2, ptr, shared_address, u16, u32,
                              wait_for_earlier_grids)
from vtlite.cuda.linear_epilogue import write_gated, write_plain
from vtlite.cuda.tiles import fragment_a, fragments_two_steps, swizzled

ROWS = 8                                # tokens of a block: 8, or a multiple of 16
WARPS = 4
CHAINS = 1                              # per warp and 16 tokens: 2 if gated, one of gates and one of ups
ROW_BYTES = 256                         # of a row of a stage: 128, 256 or 512, the elements of k are half as many
STAGES = 7
CONSTANTS = ("ROWS", "WARPS", "CHAINS", "ROW_BYTES", "STAGES")

MOST_ROWS = 64
MOST_CHAINS = 8                         # of a block
RING_BYTES = 72 << 10                   # three blocks of a multiprocessor fit beside each other
MOST_STAGES = 18
MULTIPROCESSORS = 132                   # of an H200: on every chip launches have the shapes that suit it


def constants(rows: int, warps: int, chains: int) -> dict:
    """A specialisation, with as deep a ring as fits."""
    stage_bytes = (8 * chains * warps + rows) * ROW_BYTES
    stages = max(3, min(RING_BYTES // stage_bytes, MOST_STAGES))
    return {"ROWS": rows, "WARPS": warps, "CHAINS": chains, "ROW_BYTES": ROW_BYTES, "STAGES": stages}


def chosen(T: int, N: int, chains: int) -> dict:
    """The specialisation for a shape: the warps per block that give the busiest multiprocessor the fewest rows to copy."""
    rows = next(rows for rows in (8, 16, 32, MOST_ROWS) if rows >= T)

    def copied(warps: int) -> int:
        blocks = -(-N // (8 * warps))
        return -(-blocks // MULTIPROCESSORS) * (8 * chains * warps + rows)

    return constants(rows, min(range(1, MOST_CHAINS // chains + 1), key=copied), chains)


@device
def fill(slot, stage, x, weight, T, N, vectors):
    """Start copying a stage to a slot of the ring: this warp's rows of W and the block's share of x. What lies past T, N or K
    becomes zero; `vectors` of 8 elements make K."""
    tid, lane, warp = u32(cuda.threadIdx.x), u32(lane_id()), u32(cuda.threadIdx.x) >> u32(5)
    chunk = lane % u32(ROW_BYTES // 16)
    at = stage * u32(ROW_BYTES // 16) + chunk
    first = (u32(cuda.blockIdx.x) * u32(WARPS) + warp) * u32(8)
    for i in consteval(range(8 * CHAINS * ROW_BYTES // 512)):           # 512 bytes at once
        row = lane // u32(ROW_BYTES // 16) + u32(i * 512 // ROW_BYTES)
        output = first + (row & u32(7))
        source = output + (row >> u32(3)) * N
        cp_async_16_or_zero(slot + swizzled(warp * u32(8 * CHAINS) + row, chunk, u32(ROW_BYTES)), weight,
                            source * vectors + at, (output < N) & (at < vectors))
    for i in consteval(range((ROWS * ROW_BYTES + 512 * WARPS - 1) // (512 * WARPS))):
        row = tid // u32(ROW_BYTES // 16) + u32(i * 512 * WARPS // ROW_BYTES)
        if row < u32(ROWS):
            cp_async_16_or_zero(slot + swizzled(u32(8 * CHAINS * WARPS) + row, chunk, u32(ROW_BYTES)), x,
                                row * vectors + at, (row < T) & (at < vectors))


@device
def prefetch(weight, N, vectors):
    """Have L2 fetch this warp's rows of W for the first STAGES stages, a line of 128 bytes per lane at once."""
    lane, warp = u32(lane_id()), u32(cuda.threadIdx.x) >> u32(5)
    first = (u32(cuda.blockIdx.x) * u32(WARPS) + warp) * u32(8)
    for i in consteval(range((8 * CHAINS * ROW_BYTES // 128 * STAGES + 31) // 32)):
        line = u32(32 * i) + lane
        row = line // u32(ROW_BYTES // 128 * STAGES)
        at = (line - row * u32(ROW_BYTES // 128 * STAGES)) * u32(8)
        output = first + (row & u32(7))
        if (row < u32(8 * CHAINS)) & (output < N) & (at < vectors):
            prefetch_l2(weight, (output + (row >> u32(3)) * N) * vectors + at)


@device
def read(a, b, buffer, slot, chunk):
    """Fragments of two steps, four chunks deep, into a[buffer], b[buffer]."""
    lane, warp = u32(lane_id()), u32(cuda.threadIdx.x) >> u32(5)
    for c in consteval(range(CHAINS)):
        row = warp * u32(8 * CHAINS) + u32(8 * c) + (lane & u32(7))
        b[buffer, c, 0], b[buffer, c, 1], b[buffer, c, 2], b[buffer, c, 3] = fragments_two_steps(slot, row, chunk, u32(ROW_BYTES))
    if ROWS == 8:
        row = u32(8 * CHAINS * WARPS) + (lane & u32(7))
        a[buffer, 0, 0], a[buffer, 0, 2], a[buffer, 0, 4], a[buffer, 0, 6] = fragments_two_steps(slot, row, chunk, u32(ROW_BYTES))
    else:
        for t in consteval(range(ROWS // 16)):
            row = u32(8 * CHAINS * WARPS + 16 * t)
            a[buffer, t, 0], a[buffer, t, 1], a[buffer, t, 2], a[buffer, t, 3] = fragment_a(slot, row, chunk, u32(ROW_BYTES))
            a[buffer, t, 4], a[buffer, t, 5], a[buffer, t, 6], a[buffer, t, 7] = fragment_a(slot, row, chunk + u32(2), u32(ROW_BYTES))


@device
def multiply(acc, a, b, buffer):
    """Two steps of every chain."""
    for step in consteval(range(2)):
        for t in consteval(range((ROWS + 8) // 16)):
            for c in consteval(range(CHAINS)):
                acc[t, c, 0], acc[t, c, 1], acc[t, c, 2], acc[t, c, 3] = mma_m16n8k16_bf16(
                    a[buffer, t, 4 * step], a[buffer, t, 4 * step + 1], a[buffer, t, 4 * step + 2], a[buffer, t, 4 * step + 3],
                    b[buffer, c, 2 * step], b[buffer, c, 2 * step + 1],
                    acc[t, c, 0], acc[t, c, 1], acc[t, c, 2], acc[t, c, 3])


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), ptr(bf16), ptr(u16), u32, u32, u32, u32), constants=CONSTANTS,
        threads=lambda WARPS, **_: 32 * WARPS,
        shared=lambda ROWS, WARPS, CHAINS, ROW_BYTES, STAGES: STAGES * (8 * CHAINS * WARPS + ROWS) * ROW_BYTES,
        prebuild=[constants(rows, warps, chains) for rows in (8, 16, 32, MOST_ROWS) for chains in (1, 2)
                  for warps in range(1, MOST_CHAINS // chains + 1)])
def linear_skinny_kernel(x, weight, bias, residual, y, T, N, K, flags):
    ring = shared_address(cuda.shared.array(0, u32))
    slot_bytes = u32((8 * CHAINS * WARPS + ROWS) * ROW_BYTES)
    vectors = K >> 3
    stages = (K + u32(ROW_BYTES // 2 - 1)) // u32(ROW_BYTES // 2)
    prefetch(weight, N, vectors)
    wait_for_earlier_grids()
    for stage in consteval(range(STAGES)):
        if u32(stage) <= stages:                                        # the one past the end is read, not used
            fill(ring + u32(stage) * slot_bytes, u32(stage), x, weight, T, N, vectors)
        cp_async_commit()

    acc = cuda.local.array((consteval((ROWS + 8) // 16), CHAINS, 4), f32)
    a = cuda.local.array((2, consteval((ROWS + 8) // 16), 8), u32)
    b = cuda.local.array((2, CHAINS, 4), u32)
    for t in consteval(range((ROWS + 8) // 16)):
        for c in consteval(range(CHAINS)):
            for i in consteval(range(4)):
                acc[t, c, i] = f32(0)
    for buffer in consteval(range(2)):
        for i in consteval(range(8)):
            a[buffer, 0, i] = u32(0)                                    # eight rows stay zero if ROWS is 8
    cp_async_wait(consteval(STAGES - 1))
    cuda.syncthreads()
    slot, stage = ring, u32(0)
    for buffer in consteval(range(2)):
        read(a, b, buffer, slot, u32(4 * buffer))
    while stage < stages:
        for pair in consteval(range(ROW_BYTES // 64)):                  # pairs of steps
            multiply(acc, a, b, pair % 2)
            if pair == ROW_BYTES // 64 - 2:                             # all fragments of this slot are read
                cp_async_wait(consteval(STAGES - 2))
                cuda.syncthreads()
                fill(slot, stage + u32(STAGES), x, weight, T, N, vectors)
                cp_async_commit()
                slot = slot + slot_bytes
                if slot == ring + u32(STAGES) * slot_bytes:
                    slot = ring
            read(a, b, pair % 2, slot, u32(4 * ((pair + 2) % (ROW_BYTES // 64))))
        stage = stage + 1

    lane = u32(lane_id())
    column = (u32(cuda.blockIdx.x) * u32(WARPS) + (u32(cuda.threadIdx.x) >> 5)) * 8 + 2 * (lane & 3)
    for t in consteval(range((ROWS + 8) // 16)):
        for half in consteval(range(min(ROWS // 8, 2))):
            token = u32(16 * t + 8 * half) + (lane >> 2)
            if CHAINS == 2:
                write_gated(y, bias, token, column, T, N, flags, acc[t, 0, 2 * half], acc[t, 0, 2 * half + 1],
                            acc[t, 1, 2 * half], acc[t, 1, 2 * half + 1])
            else:
                write_plain(y, bias, residual, token, column, T, N, flags, acc[t, 0, 2 * half], acc[t, 0, 2 * half + 1])
