"""The arithmetic of attention on one tile of keys, shared by the decode and the prefill kernel.

One row is one head of one token. For each row:

    s = q . k                               one chain of ascending k16 steps over head_dim
    s = tanh(s cap_scale)                   if the model has a softcap
    m = scale_log2 max(s), if that exceeds the m so far by more than HEADROOM; else m stays
    p = 2^(scale_log2 s - m), in bf16       m is a reference, not quite the maximum: p <= 2^HEADROOM
    o = o 2^(old m - m) + p V               one chain of ascending k16 steps over the keys of a chunk
    l = l 2^(old m - m) + p 1               the same chain, on a column of ones

Positions are cut into chunks of CHUNK and tiles of TILE at their multiples. m, l and o start anew in every chunk; chunks
join in ascending order: M' = max(M, m), O' = O 2^(M - M') + o 2^(m - M'), L likewise. The result is O / L. Hidden keys have
p = 0, which changes no bit: a row's bits follow from its own keys, not from the rows, tiles or chunks that go with it.

Scores and weights of 16 rows in a warp: lane 4 g + q holds rows g and g + 8 ("halves" 0 and 1) and of each 8 keys those at 2 q
and 2 q + 1. Which operand of an MMA is the rows and which the columns changes no bit.
"""

from vtlite.cuda.kernel import device
from vtlite.cuda.lang import (anew, consteval, cp_async_16, cp_async_16_or_zero, cuda, f32, f32_to_bf16x2, fma, fmax, lane_id, mul,
                              select, shfl_xor, u32)
from vtlite.cuda.tiles import swizzled
from vtlite.elementary import softmax_exp2

TILE = 64                        # keys of one step of the online softmax
CHUNK = 256                      # keys between two restarts, a multiple of TILE
HEADROOM = 8.0                   # log2 of the largest weight: m need not follow every new maximum
INFINITY = float("inf")
BF16_ONES = 0x3F803F80

HEAD_DIM = 128                   # D, a multiple of 16, at most 256
ROW_BYTES = 256                  # of a key in shared memory: 2 D up to a multiple of 128
BLOCK_SIZE = 16                  # of the cache, a multiple of 16
THREADS = 128
PLANES = 2                       # copied at once: keys and values, or 1 of them

SIXTEEN = 16                     # keys copied at once: they lie in one block of the cache
ATOM = 128                       # bytes, eight chunks: the swizzle permutes within them, so more of a row is a constant apart

# KiB of shared memory that a block may have; other chips have 227
SHARED_KIB = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_120": 99, "sm_121": 99}


def shared_kib(chip: str) -> int:
    return SHARED_KIB.get(chip, 227)


def first_that_fits(layouts: list[dict], shared_bytes, static_kib: int, chip: str) -> dict:
    """Of several layouts the first whose shared memory a chip has beside `static_kib`."""
    limit = shared_kib(chip) - static_kib << 10
    return next(constants for constants in layouts if shared_bytes(**constants) <= limit)


def row_bytes(head_dim: int) -> int:
    """ROW_BYTES for a head_dim: whole swizzles."""
    return -(-head_dim // 64) * 128


# -- keys and values from the cache

@device
def first_visible(end, window):
    """The first key that the last of `end` positions sees."""
    return select(window < end, end - window, u32(0))


@device
def start_tile(target, kv, table, table_row, first, begin, end, head_start, token_stride, plane):
    """Start copying the keys, then the values, at positions first .. first + TILE - 1, to shared memory.

    Those outside [begin, end) become zeros. table_row: where the sequence's row of the block table starts. In 16-byte
    vectors: head_start from a token's start to the head's, token_stride from token to token, plane from keys to values.
    With PLANES = 1 it is the keys alone, or the values alone if head_start has `plane` added.
    """
    whole, thread = begin <= first and first + u32(TILE) <= end, u32(cuda.threadIdx.x)
    if THREADS == 32:
        thread = anew(thread)                                            # addresses are not kept: registers are short
    for part in consteval(range(TILE // SIXTEEN)):
        position = first + u32(part * SIXTEEN)
        block = u32(0)
        if position < end and begin < position + u32(SIXTEEN):
            block = u32(table[table_row + position // u32(BLOCK_SIZE)])
        source = (block * u32(BLOCK_SIZE) + position % u32(BLOCK_SIZE)) * token_stride + head_start
        for i in consteval(range((SIXTEEN * HEAD_DIM // 8 + THREADS - 1) // THREADS)):
            piece = thread + u32(i * THREADS)
            if piece < u32(SIXTEEN * HEAD_DIM // 8):
                row = piece // u32(HEAD_DIM // 8)
                column = piece - row * u32(HEAD_DIM // 8)
                place = target + swizzled(row + u32(part * SIXTEEN), column, u32(ROW_BYTES))
                vector = source + row * token_stride + column
                if whole:
                    cp_async_16(place, kv, vector)
                    if PLANES == 2:
                        cp_async_16(place + u32(TILE * ROW_BYTES), kv, vector + plane)
                else:
                    valid = position + row - begin < end - begin
                    cp_async_16_or_zero(place, kv, vector, valid)
                    if PLANES == 2:
                        cp_async_16_or_zero(place + u32(TILE * ROW_BYTES), kv, vector + plane, valid)


# -- weights

@device
def hide_keys(s, first, low, span, half):
    """Scores of keys outside low .. low + span - 1 of this half's row become -inf; `first` is the tile's first position."""
    key = first + (u32(lane_id()) & u32(3)) * u32(2) - low
    for n in consteval(range(TILE // 8)):
        for i in consteval(range(2)):
            s[n, 2 * half + i] = select(key + u32(8 * n + i) < span, s[n, 2 * half + i], f32(-INFINITY))


@device
def weigh(s, p, m, scale_log2, half):
    """From the scores of one half its p [TILE / 8, 2], pairs of bf16 weights, and m [2] moved on; returns the factor of o and l."""
    peak = fmax(s[0, 2 * half], s[0, 2 * half + 1])
    for n in consteval(range(1, TILE // 8)):
        peak = fmax(fmax(s[n, 2 * half], s[n, 2 * half + 1]), peak)
    peak = fmax(peak, shfl_xor(peak, u32(1)))
    peak = fmax(peak, shfl_xor(peak, u32(2)))
    old = m[half]
    moves = fma(peak, scale_log2, -old) > f32(HEADROOM)          # false if every key so far is hidden: -inf + inf
    new = select(moves, mul(peak, scale_log2), old)
    m[half] = new
    reference = finite(new)
    for n in consteval(range(TILE // 8)):
        low = softmax_exp2(fma(s[n, 2 * half], scale_log2, -reference))
        high = softmax_exp2(fma(s[n, 2 * half + 1], scale_log2, -reference))
        p[n, half] = f32_to_bf16x2(low, high)
    return select(moves, softmax_exp2(old - new), f32(1))


@device
def finite(m):
    """m, or 0 where it is -inf, which would make NaN of -inf - m."""
    return select(m == f32(-INFINITY), f32(0), m)


# -- chunks

@device
def join_references(total, m):
    """(M', 2^(M - M'), 2^(m - M')) for the references M of the chunks so far and m of the next."""
    joined = fmax(total, m)
    return joined, softmax_exp2(total - finite(joined)), softmax_exp2(m - finite(joined))


@device
def joined(total, total_factor, value, factor):
    """O' or L'."""
    return fma(value, factor, mul(total, total_factor))


@device
def normalised(total, inverse):
    """O / L for the inverse of L, with +0 for both zeros."""
    return mul(total, inverse) + f32(0)
