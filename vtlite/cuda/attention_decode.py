"""Attention of sequences with one new token: every chunk of keys on its own, the partial results to global memory

An item is one chunk of one sequence and KV head; its rows are the query heads that share the KV head (`group`, at most 16).
Each warp computes the scores of all rows and keys and a part of o's columns, so warps meet only to take the next tile.
Partial results: o [S, chunks, H, D] f32 and (m, l) [S, chunks, H, 2] f32; attention_merge joins them.

How many items there are stands in device memory, and a launch in a graph must not depend on it: a fixed number of blocks, as
many as fit on the GPU, go through the items in strides. A grid of the most items a graph may meet would launch a block for
every chunk of the longest context (a thousand times too many for short ones).

Order: attention_tile.py. Bytes: 4 D per key and KV head, and (4 D + 8) group per chunk written. Bound by memory: up to
STAGES - 1 tiles are in flight, and the copies of the next item start while this one is computed.
"""

from vtlite.cuda.attention_tile import (BLOCK_SIZE, CHUNK, HALVES, HEAD_DIM, ROW_BYTES, SOFTCAP, THREADS, TILE, add_values,
                                        begin_chunk, cap_scores, first_visible, hide_keys, multiply_keys, rescale, row_bytes,
                                        start_tile, weigh)
from vtlite.cuda.attention_work import MOST_SEQUENCES, add_up, sequence_of
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (as_u32, bf16, consteval, cp_async_commit, cp_async_wait, cuda, f32, i32, i64, lane_id, load_u32,
                              ptr, shared_address, store_u32x2, u32)

STAGES = 3                       # tiles of keys and values in shared memory
COLUMNS = 32                     # of o, per warp

TILES = CHUNK // TILE
STAGE_BYTES = 2 * TILE           # times ROW_BYTES
LAYOUT = ("HEAD_DIM", "ROW_BYTES", "BLOCK_SIZE", "THREADS", "COLUMNS", "HALVES", "SOFTCAP", "STAGES")

# head_dim: threads per block, tiles in shared memory, blocks per multiprocessor; for chips with more and with less of it
TUNED = {64: [(64, 4, 3)], 96: [(96, 3, 2)], 128: [(128, 3, 2)], 256: [(128, 3, 1), (128, 2, 1), (128, 1, 1)]}


def layouts(head_dim: int, group: int, block_size: int, softcap: bool) -> list[dict]:
    """The constants for these shapes, in order of preference."""
    return [{"HEAD_DIM": head_dim, "ROW_BYTES": row_bytes(head_dim), "BLOCK_SIZE": block_size, "SOFTCAP": softcap,
             "THREADS": threads, "STAGES": stages, "COLUMNS": head_dim * 32 // threads, "HALVES": 1 if group <= 8 else 2}
            for threads, stages, _ in TUNED[head_dim]]


def shared_bytes(STAGES: int, ROW_BYTES: int, **_) -> int:
    return STAGES * STAGE_BYTES * ROW_BYTES


PREBUILT = [constants for head_dim in TUNED for group in (8, 16) for constants in layouts(head_dim, group, 16, False)]


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
    """fragments [D / 16, 4] of the `group` rows from vector `start` on; rows beyond are zeros."""
    row, word = u32(lane_id()) >> u32(2), u32(lane_id()) & u32(3)
    for half in consteval(range(2)):
        for k in consteval(range(HEAD_DIM // 16)):
            fragments[k, half], fragments[k, half + 2] = u32(0), u32(0)
        if row + u32(8 * half) < group:
            first = (start + (row + u32(8 * half)) * u32(HEAD_DIM // 8)) * u32(4) + word
            for k in consteval(range(HEAD_DIM // 16)):
                fragments[k, half] = load_u32(q, first + u32(8 * k))
                fragments[k, half + 2] = load_u32(q, first + u32(8 * k + 4))


@device
def store_partial(partial_o, partial_ml, row_start, group, first_column, m, l, o):
    """This warp's columns of o; of the first warp also m and l. row_start: the row of the item's first head."""
    lane = u32(lane_id())
    for half in consteval(range(HALVES)):
        head = (lane >> u32(2)) + u32(8 * half)
        if head < group:
            row = row_start + head
            for n in consteval(range(COLUMNS // 8)):
                column = (first_column + u32(n)) * u32(4) + (lane & u32(3))                     # in pairs
                store_u32x2(partial_o, row * u32(HEAD_DIM // 2) + column, as_u32(o[n, 2 * half]), as_u32(o[n, 2 * half + 1]))
            if first_column == u32(0) and lane & u32(3) == u32(0):
                store_u32x2(partial_ml, row, as_u32(m[half]), as_u32(l[2 * half]))


@kernel((ptr(bf16), ptr(bf16), ptr(i64), ptr(i64), ptr(i32), ptr(f32), ptr(f32), f32, f32, *[u32] * 8),
        threads=lambda THREADS, **_: THREADS, constants=LAYOUT, shared=shared_bytes, prebuild=PREBUILT)
def attention_decode_kernel(q, kv, query_start_loc, seq_lens, block_table, partial_o, partial_ml, scale_log2, cap_scale, window,
                            num_sequences, num_kv_heads, group, table_width, max_chunks, q_stride, plane):
    """window: keys that a query sees, itself included. group: query heads per KV head. In vectors: q_stride from token to token,
    plane from keys to values."""
    starts, buffers = cuda.shared.array(consteval(MOST_SEQUENCES + 1), u32), cuda.shared.array(0, u32)
    tid, grid = u32(cuda.threadIdx.x), u32(cuda.gridDim.x)
    first_column = (tid >> u32(5)) * u32(COLUMNS // 8)
    sequence = tid
    while sequence < num_sequences:
        starts[sequence + 1] = chunks_of(query_start_loc, seq_lens, sequence, window)
        sequence = sequence + u32(THREADS)
    add_up(starts, num_sequences)
    items = starts[num_sequences] * num_kv_heads

    fragments = cuda.local.array(consteval((HEAD_DIM // 16, 4)), u32)
    s, p = cuda.local.array(consteval((TILE // 8, 4)), f32), cuda.local.array(consteval((TILE // 8, 2)), u32)
    m, l, o = cuda.local.array(2, f32), cuda.local.array(4, f32), cuda.local.array(consteval((COLUMNS // 8, 4)), f32)
    coming, item, step = u32(cuda.blockIdx.x), u32(cuda.blockIdx.x), u32(0)
    next_first, next_begin, next_end, next_sequence, next_head = u32(0), u32(0), u32(0), u32(0), u32(0)
    chunk, head, first, begin, end = u32(0), u32(0), u32(0), u32(0), u32(0)
    filling, reading, buffer_bytes = shared_address(buffers), shared_address(buffers), u32(STAGE_BYTES * ROW_BYTES)
    past_buffers = filling + buffer_bytes * u32(STAGES)
    while item < items:                          # a step starts copying one tile and computes the one STAGES - 1 steps before
        cp_async_wait(consteval(max(STAGES - 2, 0)))
        cuda.syncthreads()
        tile = step & u32(TILES - 1)
        if tile == u32(0) and coming < items:
            next_sequence, next_head, next_chunk, next_first, next_begin, next_end = locate(
                coming, starts, num_sequences, num_kv_heads, seq_lens, window)
        position = next_first + tile * u32(TILE)
        if coming < items and position < next_end and next_begin < position + u32(TILE):
            start_tile(filling, kv, block_table, next_sequence * table_width, position, next_begin, next_end,
                       next_head * u32(HEAD_DIM // 8), num_kv_heads * u32(HEAD_DIM // 8), plane)
        cp_async_commit()
        if STAGES == 1:
            cp_async_wait(0)
            cuda.syncthreads()
        filling = filling + buffer_bytes
        if filling == past_buffers:
            filling = shared_address(buffers)
        if tile == u32(TILES - 1):
            coming = coming + grid
        step = step + u32(1)
        if step >= u32(STAGES):
            tile = (step - u32(STAGES)) & u32(TILES - 1)
            if tile == u32(0):
                sequence, head, chunk, first, begin, end = locate(item, starts, num_sequences, num_kv_heads, seq_lens, window)
                load_queries(q, u32(query_start_loc[sequence]) * q_stride + head * group * u32(HEAD_DIM // 8), group, fragments)
                begin_chunk(m, l, o)
            position = first + tile * u32(TILE)
            if position < end and begin < position + u32(TILE):
                multiply_keys(fragments, reading, s)
                if SOFTCAP:
                    cap_scores(s, cap_scale)
                if position < begin or end < position + u32(TILE):
                    for half in consteval(range(HALVES)):
                        hide_keys(s, position, begin, end - begin, half)
                factor0, factor1 = weigh(s, p, m, scale_log2, 0), f32(1)
                if HALVES == 2:
                    factor1 = weigh(s, p, m, scale_log2, 1)
                rescale(o, l, factor0, factor1)
                add_values(p, reading + u32(TILE * ROW_BYTES), first_column, o, l)
            reading = reading + buffer_bytes
            if reading == past_buffers:
                reading = shared_address(buffers)
            if tile == u32(TILES - 1):
                store_partial(partial_o, partial_ml, ((sequence * max_chunks + chunk) * num_kv_heads + head) * group, group,
                              first_column, m, l, o)
                item = item + grid
