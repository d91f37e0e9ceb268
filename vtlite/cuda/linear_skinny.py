"""Linear for few rows    y = x W^T, with the epilogues of linear_epilogue.py

x [T, K] bf16, T <= TILE_T; W [N, K] bf16 ([2 N, K] if GATED: all gates, then all ups); y [T, N].
Order of one output: one f32 accumulator, one step of mma.m16n8k16 per 16 products, in ascending k. It depends on K alone.
Bytes: 2 N K + 2 T (K + N); bound by the bytes of W, each read once.

x is the 16-row operand and W the 8-column one, so N / 8 independent chains per 16 tokens keep the GPU busy although no chain may
be split. A block has TILE_N rows of W (if GATED a half gates, then their ups) and keeps a ring of STAGES pieces of k of them and
of x in shared memory; its warps, WARPS_T along the tokens and WARPS_N along the outputs, own equal parts of its sums.
A chain's step takes about 33 cycles, 5.3 us for K = 5120; everything else is arranged to hide behind it or behind memory:
 * STAGES - 1 pieces are in flight at any time. A multiprocessor's share of 4.8 TB/s is 36 bytes per ns; at 700 ns that is
   25 KB that must be on their way, the rings of a multiprocessor hold about three times as much.
 * Fragments are read two pairs of steps before their use, so that no step waits for shared memory.
 * With many tokens the bound is shared memory, 128 bytes per cycle: a warp with as many outputs as tokens reads least.
 * COPIERS more warps copy for those that multiply: a chain's next step need not wait for a copy's addresses.
"""

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (anew, bf16, consteval, cp_async_16_or_zero, cp_async_commit, cp_async_wait, cuda, f32, lane_id,
                              mma_m16n8k16_bf16, named_barrier_sync, ptr, shared_address, u16, u32)
from vtlite.cuda.linear_epilogue import write_gated, write_plain
from vtlite.cuda.tiles import fragment_a, fragments_two_steps, swizzled

TILE_T = 8                              # tokens: 8, or a multiple of 16
TILE_N = 32                             # rows of W, of a block
WARPS_T, WARPS_N = 1, 4                 # that multiply
COPIERS = 0                             # warps that only copy; 0: those that multiply also copy
ROW_BYTES = 256                         # of a row of a stage: 128, 256 or 512, the elements of k are half as many
STAGES = 7
GATED = False
CONSTANTS = ("TILE_T", "TILE_N", "WARPS_T", "WARPS_N", "COPIERS", "ROW_BYTES", "STAGES", "GATED")

MOST_ROWS = 64
TILES_T = (8, 16, 32, MOST_ROWS)
TILES_N = (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128)
MANY = 32                               # tokens from which warps have several groups of 8 outputs
MOST_FOR_FEW = 64                       # TILE_N for fewer tokens
LEAST_WARPS = 4                         # that multiply, if the tile can be split so
COPYING = 4                             # COPIERS, and 2 for 8 rows of W: as measured
MOST_COPIED_FOR = 48                    # rows of W beside 64 tokens: with more, those that multiply copy as fast
MOST_SUMS = 8                           # of 16 x 8, per warp: registers
RING_BYTES = 72 << 10                   # three blocks of a multiprocessor fit beside each other
MANY_RING_BYTES = 96 << 10              # two do
MOST_STAGES = 12
MULTIPROCESSORS = 132                   # of an H200: on every chip launches have the shapes that suit it


def tiles(tile_t: int, gated: bool) -> list[int]:
    """Every TILE_N that is launched for so many tokens."""
    return [n for n in TILES_N if n % (16 if gated else 8) == 0 and (tile_t >= MANY or n <= MOST_FOR_FEW)]


def warps(tile_t: int, tile_n: int, gated: bool) -> tuple[int, int]:
    """WARPS_T, WARPS_N: of the splits that have LEAST_WARPS, the one that reads fewest rows of shared memory."""
    groups = tile_n // (16 if gated else 8)
    if tile_t < MANY:
        return 1, groups
    splits = [(t, n) for t in (tile_t // 32, tile_t // 16) for n in range(1, groups + 1)
              if groups % n == 0 and tile_t // t * (tile_n // n) <= 128 * MOST_SUMS]
    return min(splits, key=lambda split: (split[0] * split[1] < LEAST_WARPS, split[1] * tile_t + split[0] * tile_n))


def constants(tile_t: int, tile_n: int, gated: bool) -> dict:
    """The specialisation for a tile, with as deep a ring as fits."""
    warps_t, warps_n = warps(tile_t, tile_n, gated)
    ring_bytes = MANY_RING_BYTES if tile_t >= MANY else RING_BYTES
    row_bytes = 128 if tile_t >= MANY and 5 * (tile_t + tile_n) * 256 > ring_bytes else 256
    stages = max(3, min(ring_bytes // ((tile_t + tile_n) * row_bytes), MOST_STAGES))
    return {"TILE_T": tile_t, "TILE_N": tile_n, "WARPS_T": warps_t, "WARPS_N": warps_n,
            "COPIERS": 2 if tile_n == 8 else 0 if tile_t == MOST_ROWS and tile_n > MOST_COPIED_FOR else COPYING,
            "ROW_BYTES": row_bytes, "STAGES": stages, "GATED": gated}


def chosen(T: int, N: int, gated: bool) -> dict:
    """The specialisation for a shape: the tile for which the busiest multiprocessor copies the fewest rows."""
    tile_t = next(tile_t for tile_t in TILES_T if tile_t >= T)

    def copied(tile_n: int) -> int:
        blocks = -(-N * (1 + gated) // tile_n)
        return -(-blocks // MULTIPROCESSORS) * (tile_n + tile_t)

    return constants(tile_t, min(tiles(tile_t, gated), key=copied), gated)


@device
def fill(slot, stage, x, weight, T, N, vectors):
    """Start copying a stage to a slot of the ring: the block's rows of W, then x's. What lies past T, N or K becomes zero;
    `vectors` of 8 elements make K."""
    thread = u32(cuda.threadIdx.x) - u32(32 * WARPS_T * WARPS_N * (COPIERS > 0))
    if TILE_T >= MANY:
        thread = anew(thread)                                           # addresses are not kept: registers are short
    own, chunk = thread // u32(ROW_BYTES // 16), thread % u32(ROW_BYTES // 16)
    at = stage * u32(ROW_BYTES // 16) + chunk
    first, outputs = u32(cuda.blockIdx.x) * u32(TILE_N // (1 + GATED)), u32(TILE_N // (1 + GATED))
    at_once = 512 * (COPIERS or WARPS_T * WARPS_N) // ROW_BYTES         # rows
    for part in consteval(range(1 + GATED)):
        for i in consteval(range(-(-TILE_N // (1 + GATED) * ROW_BYTES // (512 * (COPIERS or WARPS_T * WARPS_N))))):
            row = own + u32(i * at_once)
            if row < outputs:
                cp_async_16_or_zero(slot + swizzled(u32(part) * outputs + row, chunk, u32(ROW_BYTES)), weight,
                                    (first + row + u32(part) * N) * vectors + at, (first + row < N) & (at < vectors))
    for i in consteval(range(-(-TILE_T * ROW_BYTES // (512 * (COPIERS or WARPS_T * WARPS_N))))):
        row = own + u32(i * at_once)
        if row < u32(TILE_T):
            cp_async_16_or_zero(slot + swizzled(u32(TILE_N) + row, chunk, u32(ROW_BYTES)), x, row * vectors + at,
                                (row < T) & (at < vectors))


@device
def fill_ring(ring, stages, x, weight, T, N, vectors):
    """Start copying the first STAGES stages, and wait for the first."""
    stage, end = u32(0), anew(u32(STAGES))                              # unrolled, its instructions would take long to arrive
    while stage < end:
        if stage <= stages:                                             # the one past the end is read, not used
            fill(ring + stage * u32((TILE_T + TILE_N) * ROW_BYTES), stage, x, weight, T, N, vectors)
        cp_async_commit()
        stage = stage + 1
    cp_async_wait(consteval(STAGES - 1))


@device
def refill(slot, stage, stages, x, weight, T, N, vectors):
    """Start copying to the slot of a stage that all have read: the stage STAGES later, if there is one."""
    if stage + u32(STAGES) < stages:
        fill(slot, stage + u32(STAGES), x, weight, T, N, vectors)
    cp_async_commit()


@device
def following(slot, ring):
    """The slot after this one."""
    slot = slot + u32((TILE_T + TILE_N) * ROW_BYTES)
    if slot == ring + u32(STAGES * (TILE_T + TILE_N) * ROW_BYTES):
        slot = ring
    return slot


@device
def meet():
    """All warps of the block, wherever they are in the program."""
    named_barrier_sync(u32(1), u32(32 * (WARPS_T * WARPS_N + COPIERS)))


@device
def read(a, b, buffer, slot, chunk):
    """This warp's fragments of two steps, four chunks deep, into a[buffer], b[buffer]."""
    lane, warp = u32(lane_id()), u32(cuda.threadIdx.x) >> u32(5)
    left, top = warp % u32(WARPS_N) * u32(TILE_N // WARPS_N // (1 + GATED)), warp // u32(WARPS_N) * u32(TILE_T // WARPS_T)
    for part in consteval(range(1 + GATED)):
        for g in consteval(range(TILE_N // WARPS_N // (1 + GATED) // 8)):
            c = consteval(part * (TILE_N // WARPS_N // 16) + g)
            row = left + u32(part * TILE_N // 2 + 8 * g) + (lane & u32(7))
            b[buffer, c, 0], b[buffer, c, 1], b[buffer, c, 2], b[buffer, c, 3] = fragments_two_steps(slot, row, chunk, u32(ROW_BYTES))
    if TILE_T == 8:
        row = u32(TILE_N) + (lane & u32(7))
        a[buffer, 0, 0], a[buffer, 0, 2], a[buffer, 0, 4], a[buffer, 0, 6] = fragments_two_steps(slot, row, chunk, u32(ROW_BYTES))
    else:
        for t in consteval(range(TILE_T // WARPS_T // 16)):
            row = u32(TILE_N + 16 * t) + top
            a[buffer, t, 0], a[buffer, t, 1], a[buffer, t, 2], a[buffer, t, 3] = fragment_a(slot, row, chunk, u32(ROW_BYTES))
            a[buffer, t, 4], a[buffer, t, 5], a[buffer, t, 6], a[buffer, t, 7] = fragment_a(slot, row, chunk + u32(2), u32(ROW_BYTES))


@device
def multiply(acc, a, b, buffer):
    """Two steps of every chain."""
    for step in consteval(range(2)):
        for t in consteval(range((TILE_T // WARPS_T + 8) // 16)):
            for c in consteval(range(TILE_N // WARPS_N // 8)):
                acc[t, c, 0], acc[t, c, 1], acc[t, c, 2], acc[t, c, 3] = mma_m16n8k16_bf16(
                    a[buffer, t, 4 * step], a[buffer, t, 4 * step + 1], a[buffer, t, 4 * step + 2], a[buffer, t, 4 * step + 3],
                    b[buffer, c, 2 * step], b[buffer, c, 2 * step + 1],
                    acc[t, c, 0], acc[t, c, 1], acc[t, c, 2], acc[t, c, 3])


@device
def write(acc, y, bias, residual, T, N, flags):
    """This warp's outputs from its sums."""
    lane, warp = u32(lane_id()), u32(cuda.threadIdx.x) >> u32(5)
    outputs = u32(TILE_N // WARPS_N // (1 + GATED))
    left = (u32(cuda.blockIdx.x) * u32(WARPS_N) + warp % u32(WARPS_N)) * outputs + u32(2) * (lane & u32(3))
    top = warp // u32(WARPS_N) * u32(TILE_T // WARPS_T) + (lane >> u32(2))
    for t in consteval(range((TILE_T // WARPS_T + 8) // 16)):
        for half in consteval(range(min(TILE_T // 8, 2))):
            for g in consteval(range(TILE_N // WARPS_N // (1 + GATED) // 8)):
                token, column = top + u32(16 * t + 8 * half), left + u32(8 * g)
                if GATED:
                    up = consteval(TILE_N // WARPS_N // 16 + g)
                    write_gated(y, bias, token, column, T, N, flags, acc[t, g, 2 * half], acc[t, g, 2 * half + 1],
                                acc[t, up, 2 * half], acc[t, up, 2 * half + 1])
                else:
                    write_plain(y, bias, residual, token, column, T, N, flags, acc[t, g, 2 * half], acc[t, g, 2 * half + 1])


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), ptr(bf16), ptr(u16), u32, u32, u32, u32), constants=CONSTANTS,
        threads=lambda WARPS_T, WARPS_N, COPIERS, **_: 32 * (WARPS_T * WARPS_N + COPIERS),
        min_blocks=lambda WARPS_T, WARPS_N, COPIERS, **_: 2 if WARPS_T * WARPS_N + COPIERS <= 8 else 1,
        shared=lambda TILE_T, TILE_N, ROW_BYTES, STAGES, **_: STAGES * (TILE_T + TILE_N) * ROW_BYTES,
        prebuild=[constants(tile_t, tile_n, gated) for tile_t in TILES_T for gated in (False, True)
                  for tile_n in tiles(tile_t, gated)])
def linear_skinny_kernel(x, weight, bias, residual, y, T, N, K, flags):
    ring = shared_address(cuda.shared.array(0, u32))
    vectors = K >> 3
    stages = (K + u32(ROW_BYTES // 2 - 1)) // u32(ROW_BYTES // 2)
    slot, stage = ring, u32(0)
    if COPIERS == 0:
        fill_ring(ring, stages, x, weight, T, N, vectors)
    elif u32(cuda.threadIdx.x) >= u32(32 * WARPS_T * WARPS_N):
        fill_ring(ring, stages, x, weight, T, N, vectors)
        meet()
        while stage < stages:
            cp_async_wait(consteval(STAGES - 2))
            meet()
            refill(slot, stage, stages, x, weight, T, N, vectors)
            slot, stage = following(slot, ring), stage + 1
        return

    acc = cuda.local.array((consteval((TILE_T // WARPS_T + 8) // 16), consteval(TILE_N // WARPS_N // 8), 4), f32)
    a = cuda.local.array((2, consteval((TILE_T // WARPS_T + 8) // 16), 8), u32)
    b = cuda.local.array((2, consteval(TILE_N // WARPS_N // 8), 4), u32)
    for t in consteval(range((TILE_T // WARPS_T + 8) // 16)):
        for c in consteval(range(TILE_N // WARPS_N // 8)):
            for i in consteval(range(4)):
                acc[t, c, i] = f32(0)
    for buffer in consteval(range(2)):
        for i in consteval(range(8)):
            a[buffer, 0, i] = u32(0)                                    # eight rows stay zero if TILE_T is 8
    meet()
    for buffer in consteval(range(2)):
        read(a, b, buffer, slot, u32(4 * buffer))
    while stage < stages:
        for pair in consteval(range(ROW_BYTES // 64)):                  # pairs of steps
            multiply(acc, a, b, pair % 2)
            if pair == ROW_BYTES // 64 - 2:                             # all fragments of this slot are read
                if COPIERS == 0:
                    cp_async_wait(consteval(STAGES - 2))
                meet()
                if COPIERS == 0:
                    refill(slot, stage, stages, x, weight, T, N, vectors)
                slot = following(slot, ring)
            read(a, b, pair % 2, slot, u32(4 * ((pair + 2) % (ROW_BYTES // 64))))
        stage = stage + 1
    write(acc, y, bias, residual, T, N, flags)
