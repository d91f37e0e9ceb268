"""Attention of sequences with one new token: every chunk of keys on its own, the partial results to global memory

An item is one chunk of one sequence and KV head; its rows are the query heads that share the KV head (`group`, at most 16).
Keys and values of a tile are copied and used in turn. Each warp computes the scores of its share of the tile's keys, for all
heads, and leaves them in shared memory; then every warp makes the weights of all keys and sums its share of o's columns. In both
products heads are the 8 columns of the MMA: up to 8 of them fill it.
Partial results: o [S, chunks, H, D] f32 and (m, l) [S, chunks, H, 2] f32; attention_merge joins them. Where no sequence can
have more than one chunk (max_chunks = 1) there is nothing to merge: the rows of `out` are written here, zeros for padding.

How many items there are stands in device memory, and a launch in a graph must not depend on it: a fixed number of blocks, as
many as fit on the GPU, go through the items in strides. A grid of the most items a graph may meet would launch a block for
every chunk of the longest context (a thousand times too many for short ones).

Order: attention_tile.py. Bytes: 4 D per key and KV head, and (4 D + 8) group per chunk written. Bound by memory: STAGES - 1
halves of tiles are in flight in each block, and the copies of the next item start while this one is computed.
"""

from vtlite.cuda.attention_tile import (ATOM, BF16_ONES, BLOCK_SIZE, CHUNK, HEAD_DIM, INFINITY, ROW_BYTES, THREADS, TILE,
                                        first_visible, hide_keys, join_references, joined, normalised, row_bytes, shared_kib,
                                        start_tile, weigh)
from vtlite.cuda.attention_work import MOST_SEQUENCES, add_up, sequence_of
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (as_u32, bf16, consteval, cp_async_commit, cp_async_wait, cuda, div, f32, f32_to_bf16, i32, i64,
                              lane_id, load_u32, mma_m16n8k16_bf16, mul, ptr, select, shared_address, shfl_idx, store_u32x2, u32,
                              vote_any)
from vtlite.cuda.lang.primitive import runs_on
from vtlite.cuda.tiles import fragment_a, fragments_b_transposed
from vtlite.elementary import tanh

STAGES = 4                       # tiles of keys, or of values, in shared memory
BLOCKS = 3                       # per multiprocessor, where shared memory allows them: so registers must allow them too
COLUMNS = 32                     # of o, per warp
KEYS = 16                        # of a tile, whose scores one warp computes
HALVES = 1                       # eights of query heads per KV head
QUERIES_STAY = True              # in registers from tile to tile; else they are read again (from L1) for each
SOFTCAP = False
PLANES = 1                       # keys and values have their own stages

TILES = CHUNK // TILE
STEPS = 2 * TILES                # of a chunk: the keys and the values of each tile
ROW_OF_SCORES = TILE + 8         # f32 in shared memory: 8 rows of 4 pairs then cover all banks
STATIC_KIB = 8                   # shared memory besides the stages: scores and attention_work's starts
LAYOUT = ("HEAD_DIM", "ROW_BYTES", "BLOCK_SIZE", "THREADS", "COLUMNS", "KEYS", "HALVES", "QUERIES_STAY", "SOFTCAP", "PLANES",
          "STAGES", "BLOCKS")

# head_dim: threads per block (a warp for 16, 32 or 64 keys of a tile), STAGES, BLOCKS
TUNED = {64: (64, 8, 3), 96: (64, 5, 2), 128: (128, 3, 4), 256: (128, 2, 3)}


def layout(head_dim: int, group: int, block_size: int, softcap: bool, chip: str) -> dict:
    """The constants for these shapes."""
    (threads, stages, blocks), halves = TUNED[head_dim], 1 if group <= 8 else 2
    return {"HEAD_DIM": head_dim, "ROW_BYTES": row_bytes(head_dim), "BLOCK_SIZE": block_size, "SOFTCAP": softcap,
            "THREADS": threads, "COLUMNS": head_dim * 32 // threads, "KEYS": TILE * 32 // threads, "PLANES": 1,
            "HALVES": halves, "QUERIES_STAY": runs_on(lowest_chip(head_dim, halves, True), chip), "STAGES": stages,
            "BLOCKS": blocks}


def lowest_chip(HEAD_DIM: int, HALVES: int, QUERIES_STAY: bool, **_) -> str:
    """Before sm_90, code for a shuffle in a loop keeps half of the registers: too few with 64 of queries among them."""
    return "sm_90" if QUERIES_STAY and HEAD_DIM * HALVES > 256 else "sm_80"


def shared_bytes(STAGES: int, ROW_BYTES: int, **_) -> int:
    return STAGES * TILE * ROW_BYTES


def blocks_per_multiprocessor(constants: dict, chip: str) -> int:
    """How many to launch: no more than run at once."""
    return min(constants["BLOCKS"], shared_kib(chip) // (STATIC_KIB + (shared_bytes(**constants) >> 10)))


PREBUILT = [layout(head_dim, group, 16, False, "sm_90") for head_dim in TUNED for group in (8, 16)]
PREBUILT.append(layout(256, 16, 16, False, "sm_80"))


@device
def chunks_of(query_start_loc, seq_lens, sequence, window):
    """How many chunks a sequence has here: none unless it has exactly one new token."""
    chunks, end = u32(0), u32(seq_lens[sequence])
    if query_start_loc[sequence + 1] - query_start_loc[sequence] == 1 and end > u32(0):
        chunks = (end - u32(1)) // u32(CHUNK) - first_visible(end, window) // u32(CHUNK) + u32(1)
    return chunks


@device
def locate(item, starts, num_sequences, num_kv_heads, seq_lens, window):
    """(sequence, KV head, which of its chunks, first position of that chunk, first and end of the visible keys) of an item."""
    unit = item // num_kv_heads
    sequence = sequence_of(starts, num_sequences, unit)
    end = u32(seq_lens[sequence])
    begin, chunk = first_visible(end, window), unit - starts[sequence]
    return sequence, item - unit * num_kv_heads, chunk, (begin // u32(CHUNK) + chunk) * u32(CHUNK), begin, end


@device
def load_queries(q, start, group, fragments):
    """fragments [D / 16, HALVES, 2] of the `group` rows from vector `start` on; rows beyond are zeros."""
    row, word = u32(lane_id()) >> u32(2), u32(lane_id()) & u32(3)
    for half in consteval(range(HALVES)):
        for k in consteval(range(HEAD_DIM // 16)):
            fragments[k, half, 0], fragments[k, half, 1] = u32(0), u32(0)
        if row + u32(8 * half) < group:
            first = (start + (row + u32(8 * half)) * u32(HEAD_DIM // 8)) * u32(4) + word
            for k in consteval(range(HEAD_DIM // 16)):
                fragments[k, half, 0] = load_u32(q, first + u32(8 * k))
                fragments[k, half, 1] = load_u32(q, first + u32(8 * k + 4))


@device
def multiply_by_keys(q, keys, s):
    """s [KEYS / 16, HALVES, 4] = k . q: 16 keys are the rows, 8 query heads the columns; keys: a shared address."""
    for n in consteval(range(KEYS // 16)):
        for half in consteval(range(HALVES)):
            for i in consteval(range(4)):
                s[n, half, i] = f32(0)
    for k in consteval(range(HEAD_DIM // 16)):
        for n in consteval(range(KEYS // 16)):
            a0, a1, a2, a3 = fragment_a(keys + u32(k // 4 * ATOM), u32(16 * n), u32(2 * k % 8), u32(ROW_BYTES))
            for half in consteval(range(HALVES)):
                s[n, half, 0], s[n, half, 1], s[n, half, 2], s[n, half, 3] = mma_m16n8k16_bf16(
                    a0, a1, a2, a3, q[k, half, 0], q[k, half, 1], s[n, half, 0], s[n, half, 1], s[n, half, 2], s[n, half, 3])


@device
def store_scores(scores, first_key, s, cap_scale):
    """s [KEYS / 16, HALVES, 4] of the warp's keys, from first_key on, to scores [8 HALVES, TILE] in shared memory."""
    key, head = first_key + (u32(lane_id()) >> u32(2)), (u32(lane_id()) & u32(3)) * u32(2)
    for n in consteval(range(KEYS // 16)):
        for half in consteval(range(HALVES)):
            for i in consteval(range(4)):
                score = s[n, half, i]
                if SOFTCAP:
                    score = tanh(mul(score, cap_scale))
                scores[head + u32(8 * half + i % 2), key + u32(16 * n + i // 2 * 8)] = score


@device
def load_scores(scores, s):
    """s [TILE / 8, 4] of the whole tile, with heads as rows."""
    row, key = u32(lane_id()) >> u32(2), (u32(lane_id()) & u32(3)) * u32(2)
    for n in consteval(range(TILE // 8)):
        for half in consteval(range(HALVES)):
            for i in consteval(range(2)):
                s[n, 2 * half + i] = scores[row + u32(8 * half), key + u32(8 * n + i)]


# -- the weighted sum: columns of o are the rows of its MMA, heads the columns; lane 4 g + q has heads 2 q and 2 q + 1

@device
def of_columns(x, half, i):
    """What x [HALVES] is for head 2 q + i of this half; as rows, lanes 4 g .. 4 g + 3 have head g."""
    return shfl_idx(x[half], ((u32(lane_id()) & u32(3)) * u32(2) + u32(i)) * u32(4))


@device
def begin_chunk(m, l, o):
    """m [HALVES], l [HALVES, 4], o [COLUMNS / 16, HALVES, 4] of no keys."""
    for half in consteval(range(HALVES)):
        m[half] = f32(-INFINITY)
        for i in consteval(range(4)):
            l[half, i] = f32(0)
            for n in consteval(range(COLUMNS // 16)):
                o[n, half, i] = f32(0)


@device
def scale_sums(o, l, factors):
    """Multiply o and l by the factors [HALVES] of the heads. Multiplying by 1 changes nothing: a warp of ones does not."""
    for half in consteval(range(HALVES)):
        if vote_any(factors[half] != f32(1)):
            even, odd = of_columns(factors, half, 0), of_columns(factors, half, 1)
            l[half, 0], l[half, 1] = mul(l[half, 0], even), mul(l[half, 1], odd)
            for n in consteval(range(COLUMNS // 16)):
                o[n, half, 0], o[n, half, 1] = mul(o[n, half, 0], even), mul(o[n, half, 1], odd)
                o[n, half, 2], o[n, half, 3] = mul(o[n, half, 2], even), mul(o[n, half, 3], odd)


@device
def add_weighted(p, values, first_column, o, l):
    """o += V p for the columns of V from first_column (in eights), l += 1 p; values: a shared address."""
    for k in consteval(range(TILE // 16)):
        for n in consteval(range(COLUMNS // 16)):
            a0, a2, a1, a3 = fragments_b_transposed(values + u32(n // 4 * ATOM), u32(16 * k), first_column + u32(2 * n % 8),
                                                    u32(ROW_BYTES))
            for half in consteval(range(HALVES)):
                o[n, half, 0], o[n, half, 1], o[n, half, 2], o[n, half, 3] = mma_m16n8k16_bf16(
                    a0, a1, a2, a3, p[2 * k, half], p[2 * k + 1, half],
                    o[n, half, 0], o[n, half, 1], o[n, half, 2], o[n, half, 3])
        for half in consteval(range(HALVES)):
            l[half, 0], l[half, 1], l[half, 2], l[half, 3] = mma_m16n8k16_bf16(
                u32(BF16_ONES), u32(BF16_ONES), u32(BF16_ONES), u32(BF16_ONES), p[2 * k, half], p[2 * k + 1, half],
                l[half, 0], l[half, 1], l[half, 2], l[half, 3])


@device
def store_partial(partial_o, partial_ml, row_start, group, first_column, m, l, o):
    """This warp's columns of o; of the first warp also m and l. row_start: the row of the item's first head."""
    lane, column = u32(lane_id()), first_column * u32(8) + (u32(lane_id()) >> u32(2))
    for half in consteval(range(HALVES)):
        for i in consteval(range(2)):
            head, reference = (lane & u32(3)) * u32(2) + u32(8 * half + i), of_columns(m, half, i)
            if head < group:
                row = row_start + head
                for n in consteval(range(COLUMNS // 16)):
                    partial_o[row * u32(HEAD_DIM) + column + u32(16 * n)] = o[n, half, i]
                    partial_o[row * u32(HEAD_DIM) + column + u32(16 * n + 8)] = o[n, half, i + 2]
                if column == u32(0):
                    store_u32x2(partial_ml, row, as_u32(reference), as_u32(l[half, i]))


@device
def store_rows(out, row_start, group, first_column, is_padding, m, l, o):
    """This warp's columns of the rows of `out`, for the only chunk of a sequence: with attention_merge's operations."""
    lane, column = u32(lane_id()), first_column * u32(8) + (u32(lane_id()) >> u32(2))
    for half in consteval(range(HALVES)):
        for i in consteval(range(2)):
            head, reference = (lane & u32(3)) * u32(2) + u32(8 * half + i), of_columns(m, half, i)
            if head < group:
                _, nothing, factor = join_references(f32(-INFINITY), reference)
                inverse = select(is_padding, f32(0), div(f32(1), joined(f32(0), nothing, l[half, i], factor)))
                for n in consteval(range(COLUMNS // 16)):
                    place = (row_start + head) * u32(HEAD_DIM) + column + u32(16 * n)
                    out[place] = f32_to_bf16(normalised(joined(f32(0), nothing, o[n, half, i], factor), inverse))
                    out[place + u32(8)] = f32_to_bf16(normalised(joined(f32(0), nothing, o[n, half, i + 2], factor), inverse))


@kernel((ptr(bf16), ptr(bf16), ptr(i64), ptr(i64), ptr(i32), ptr(f32), ptr(f32), ptr(bf16), f32, f32, *[u32] * 8),
        threads=lambda THREADS, **_: THREADS, min_blocks=lambda BLOCKS, **_: BLOCKS, constants=LAYOUT, shared=shared_bytes,
        needs=lowest_chip, prebuild=PREBUILT)
def attention_decode_kernel(q, kv, query_start_loc, seq_lens, block_table, partial_o, partial_ml, out, scale_log2, cap_scale,
                            window, num_sequences, num_kv_heads, group, table_width, max_chunks, q_stride, plane):
    """window: keys that a query sees, itself included. group: query heads per KV head. In vectors: q_stride from token to token,
    plane from keys to values."""
    starts, buffers = cuda.shared.array(consteval(MOST_SEQUENCES + 1), u32), cuda.shared.array(0, u32)
    tid, warp, grid = u32(cuda.threadIdx.x), u32(cuda.threadIdx.x) >> u32(5), u32(cuda.gridDim.x)
    first_column = warp * u32(COLUMNS // 8)
    sequence = tid
    while sequence < num_sequences:
        pieces = chunks_of(query_start_loc, seq_lens, sequence, window)
        if max_chunks == u32(1) and query_start_loc[sequence + 1] - query_start_loc[sequence] == 1:
            pieces = u32(1)                      # padding is written here too
        starts[sequence + 1] = pieces
        sequence = sequence + u32(THREADS)
    add_up(starts, num_sequences)
    items = starts[num_sequences] * num_kv_heads

    scores = cuda.shared.array(consteval((8 * HALVES, ROW_OF_SCORES)), f32)
    fragments = cuda.local.array(consteval((HEAD_DIM // 16, HALVES, 2)), u32)
    own = cuda.local.array(consteval((KEYS // 16, HALVES, 4)), f32)
    s, p = cuda.local.array(consteval((TILE // 8, 4)), f32), cuda.local.array(consteval((TILE // 8, 2)), u32)
    m, factors, l = cuda.local.array(HALVES, f32), cuda.local.array(HALVES, f32), cuda.local.array(consteval((HALVES, 4)), f32)
    o = cuda.local.array(consteval((COLUMNS // 16, HALVES, 4)), f32)
    coming, item, step = u32(cuda.blockIdx.x), u32(cuda.blockIdx.x), u32(0)
    next_first, next_begin, next_end, next_sequence, next_head = u32(0), u32(0), u32(0), u32(0), u32(0)
    chunk, head, first_query, first, begin, end = u32(0), u32(0), u32(0), u32(0), u32(0), u32(0)
    filling, reading, buffer_bytes = shared_address(buffers), shared_address(buffers), u32(TILE * ROW_BYTES)
    past_buffers = filling + buffer_bytes * u32(STAGES)
    while item < items:                  # a step starts copying one half of a tile and computes the one STAGES - 1 steps before
        cp_async_wait(consteval(STAGES - 2))
        cuda.syncthreads()
        part = step & u32(STEPS - 1)
        if part == u32(0) and coming < items:
            next_sequence, next_head, next_chunk, next_first, next_begin, next_end = locate(
                coming, starts, num_sequences, num_kv_heads, seq_lens, window)
        position = next_first + (part >> u32(1)) * u32(TILE)
        if coming < items and position < next_end and next_begin < position + u32(TILE):
            start_tile(filling, kv, block_table, next_sequence * table_width, position, next_begin, next_end,
                       next_head * u32(HEAD_DIM // 8) + (part & u32(1)) * plane, num_kv_heads * u32(HEAD_DIM // 8), plane)
        cp_async_commit()
        filling = filling + buffer_bytes
        if filling == past_buffers:
            filling = shared_address(buffers)
        if part == u32(STEPS - 1):
            coming = coming + grid
        step = step + u32(1)
        if step >= u32(STAGES):
            part = (step - u32(STAGES)) & u32(STEPS - 1)
            if part == u32(0):
                sequence, head, chunk, first, begin, end = locate(item, starts, num_sequences, num_kv_heads, seq_lens, window)
                first_query = u32(query_start_loc[sequence]) * q_stride + head * group * u32(HEAD_DIM // 8)
                if QUERIES_STAY:
                    load_queries(q, first_query, group, fragments)
                begin_chunk(m, l, o)
            position = first + (part >> u32(1)) * u32(TILE)
            if position < end and begin < position + u32(TILE):
                if part & u32(1) == u32(0):
                    if not QUERIES_STAY:
                        load_queries(q, first_query, group, fragments)
                    multiply_by_keys(fragments, reading + warp * u32(KEYS * ROW_BYTES), own)
                    store_scores(scores, warp * u32(KEYS), own, cap_scale)
                else:                            # the step between has met all warps
                    load_scores(scores, s)
                    if position < begin or end < position + u32(TILE):
                        for half in consteval(range(HALVES)):
                            hide_keys(s, position, begin, end - begin, half)
                    for half in consteval(range(HALVES)):
                        factors[half] = weigh(s, p, m, scale_log2, half)
                    scale_sums(o, l, factors)
                    add_weighted(p, reading, first_column, o, l)
            reading = reading + buffer_bytes
            if reading == past_buffers:
                reading = shared_address(buffers)
            if part == u32(STEPS - 1):
                if max_chunks == u32(1):
                    row_start = (u32(query_start_loc[sequence]) * num_kv_heads + head) * group
                    store_rows(out, row_start, group, first_column, end == u32(0), m, l, o)
                else:
                    row_start = ((sequence * max_chunks + chunk) * num_kv_heads + head) * group
                    store_partial(partial_o, partial_ml, row_start, group, first_column, m, l, o)
                item = item + grid
