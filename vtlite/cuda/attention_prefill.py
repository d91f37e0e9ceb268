"""Attention of sequences with several new tokens: a block per query tile and KV head goes through all visible keys

Rows of a sequence and KV head are numbered token * group + head within the group; a block takes THREADS / 2 of them, a warp 16,
so that a group of heads reads each key once. The chunk in work (m, l, o) lies in registers, the joined chunks O in shared
memory, thread by thread. Masks are computed only in tiles where some row does not see some key.

Order: attention_tile.py. Flops: 4 D per visible key and query head; bound by the tensor core and by the instructions per score.
Blocks with late rows, which see more keys, start first.
"""

from vtlite.cuda.attention_tile import (ATOM, BF16_ONES, BLOCK_SIZE, CHUNK, HEAD_DIM, INFINITY, ROW_BYTES, THREADS, TILE,
                                        first_visible, hide_keys, join_references, joined, normalised, row_bytes, start_tile, weigh)
from vtlite.cuda.attention_work import MOST_SEQUENCES, add_up, sequence_of
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (as_u32, bf16, consteval, cp_async_16_or_zero, cp_async_commit, cp_async_wait, cuda, div, f32,
                              f32_to_bf16x2, i32, i64, lane_id, load_shared_u32x4, mma_m16n8k16_bf16, mul, ptr, select,
                              shared_address, store_shared_u32x4, store_u32, u32, u32_as_f32, vote_any)
from vtlite.cuda.tiles import fragment_a, fragments_b, fragments_b_transposed, swizzled
from vtlite.elementary import tanh

SOFTCAP = False
STAGES = 2                       # tiles of keys and values in shared memory
STATIC_KIB = 1                   # shared memory besides: attention_work's starts
QUERIES_STAY = True              # in registers; else they are read from shared memory for each tile
LAYOUT = ("HEAD_DIM", "ROW_BYTES", "BLOCK_SIZE", "THREADS", "SOFTCAP", "QUERIES_STAY", "STAGES")
# head_dim: threads per block and tiles in shared memory, for chips with more and with less of it
TUNED = {64: [(128, 2)], 96: [(128, 2)], 128: [(256, 2), (128, 2)], 256: [(128, 2), (32, 2), (32, 1)]}


def layouts(head_dim: int, block_size: int, softcap: bool) -> list[dict]:
    """The constants for these shapes, in order of preference."""
    tuned, stay = TUNED[head_dim], head_dim <= 128
    if softcap and head_dim in (96, 128):                    # a tanh needs the registers that the queries would take
        tuned, stay = tuned + [(64, 2)], False
    return [{"HEAD_DIM": head_dim, "ROW_BYTES": row_bytes(head_dim), "BLOCK_SIZE": block_size, "SOFTCAP": softcap,
             "QUERIES_STAY": stay, "THREADS": threads, "STAGES": stages} for threads, stages in tuned]


def shared_bytes(STAGES: int, ROW_BYTES: int, THREADS: int, HEAD_DIM: int, QUERIES_STAY: bool, **_) -> int:
    """Keys and values, the joined chunks and, where they do not stay in registers, the queries."""
    queries = 0 if QUERIES_STAY else THREADS // 2 * ROW_BYTES
    return STAGES * 2 * TILE * ROW_BYTES + THREADS // 2 * HEAD_DIM * 4 + queries


PREBUILT = [constants for head_dim in TUNED for constants in layouts(head_dim, 16, False)]


@device
def start_queries(target, warp_bytes, q, start, q_stride, group, first_row, num_rows):
    """Start copying the block's rows; those of the next warp lie warp_bytes on. start: vector of the first token's first head."""
    for i in consteval(range(HEAD_DIM // 16)):
        piece = u32(cuda.threadIdx.x) + u32(i * THREADS)
        place = piece // u32(HEAD_DIM // 8)
        column, row = piece - place * u32(HEAD_DIM // 8), first_row + place
        token = row // group
        source = start + token * q_stride + (row - token * group) * u32(HEAD_DIM // 8) + column
        address = target + (place >> u32(4)) * warp_bytes + swizzled(place & u32(15), column, u32(ROW_BYTES))
        cp_async_16_or_zero(address, q, source, row < num_rows)


@device
def clear(s):
    """Zeros for s [TILE / 8, 4]."""
    for n in consteval(range(TILE // 8)):
        for i in consteval(range(4)):
            s[n, i] = f32(0)


@device
def multiply_keys(q, keys, s):
    """s [TILE / 8, 4] = q . k for fragments q [D / 16, 4] and the keys at a shared address."""
    clear(s)
    for k in consteval(range(HEAD_DIM // 16)):
        multiply_keys_step(q[k, 0], q[k, 1], q[k, 2], q[k, 3], keys + u32(k // 4 * ATOM), u32(2 * k % 8), s)


@device
def multiply_keys_of_shared(queries, keys, s):
    """multiply_keys for 16 query rows at a shared address."""
    clear(s)
    for k in consteval(range(HEAD_DIM // 16)):
        a0, a1, a2, a3 = fragment_a(queries + u32(k // 4 * ATOM), u32(0), u32(2 * k % 8), u32(ROW_BYTES))
        multiply_keys_step(a0, a1, a2, a3, keys + u32(k // 4 * ATOM), u32(2 * k % 8), s)


@device
def multiply_keys_step(a0, a1, a2, a3, keys, column, s):
    """Add to s the products of 16 elements, those from chunk `column` on."""
    for n in consteval(range(TILE // 16)):
        b0, b1, b2, b3 = fragments_b(keys, u32(16 * n), column, u32(ROW_BYTES))
        s[2 * n, 0], s[2 * n, 1], s[2 * n, 2], s[2 * n, 3] = mma_m16n8k16_bf16(
            a0, a1, a2, a3, b0, b1, s[2 * n, 0], s[2 * n, 1], s[2 * n, 2], s[2 * n, 3])
        s[2 * n + 1, 0], s[2 * n + 1, 1], s[2 * n + 1, 2], s[2 * n + 1, 3] = mma_m16n8k16_bf16(
            a0, a1, a2, a3, b2, b3, s[2 * n + 1, 0], s[2 * n + 1, 1], s[2 * n + 1, 2], s[2 * n + 1, 3])


@device
def cap_scores(s, cap_scale):
    """The softcap: s becomes tanh(s cap_scale), in units of the cap."""
    for n in consteval(range(TILE // 8)):
        for i in consteval(range(4)):
            s[n, i] = tanh(mul(s[n, i], cap_scale))


@device
def rescale(o, l, factor0, factor1):
    """Multiply o and l by the factors of the two halves. Multiplying by 1 changes nothing: a warp of ones does not."""
    if vote_any(factor0 != f32(1) or factor1 != f32(1)):
        for n in consteval(range(HEAD_DIM // 8)):
            o[n, 0], o[n, 1] = mul(o[n, 0], factor0), mul(o[n, 1], factor0)
            o[n, 2], o[n, 3] = mul(o[n, 2], factor1), mul(o[n, 3], factor1)
        l[0], l[1], l[2], l[3] = mul(l[0], factor0), mul(l[1], factor0), mul(l[2], factor1), mul(l[3], factor1)


@device
def add_values(p, values, o, l):
    """o [D / 8, 4] += p V, l [4] += p 1; values: a shared address."""
    for k in consteval(range(TILE // 16)):
        a0, a1, a2, a3 = p[2 * k, 0], p[2 * k, 1], p[2 * k + 1, 0], p[2 * k + 1, 1]
        for n in consteval(range(HEAD_DIM // 16)):
            b0, b1, b2, b3 = fragments_b_transposed(values + u32(n // 4 * ATOM), u32(16 * k), u32(2 * n % 8), u32(ROW_BYTES))
            o[2 * n, 0], o[2 * n, 1], o[2 * n, 2], o[2 * n, 3] = mma_m16n8k16_bf16(
                a0, a1, a2, a3, b0, b1, o[2 * n, 0], o[2 * n, 1], o[2 * n, 2], o[2 * n, 3])
            o[2 * n + 1, 0], o[2 * n + 1, 1], o[2 * n + 1, 2], o[2 * n + 1, 3] = mma_m16n8k16_bf16(
                a0, a1, a2, a3, b2, b3, o[2 * n + 1, 0], o[2 * n + 1, 1], o[2 * n + 1, 2], o[2 * n + 1, 3])
        l[0], l[1], l[2], l[3] = mma_m16n8k16_bf16(a0, a1, a2, a3, u32(BF16_ONES), u32(BF16_ONES), l[0], l[1], l[2], l[3])


@device
def begin_chunk(m, l, o):
    m[0], m[1] = f32(-INFINITY), f32(-INFINITY)
    for i in consteval(range(4)):
        l[i] = f32(0)
        for n in consteval(range(HEAD_DIM // 8)):
            o[n, i] = f32(0)


@device
def load_total(totals, n):
    """The four O of eight columns that this thread keeps; a warp's 512 bytes lie together."""
    t0, t1, t2, t3 = load_shared_u32x4(totals + u32(512 * n))
    return u32_as_f32(t0), u32_as_f32(t1), u32_as_f32(t2), u32_as_f32(t3)


@device
def store_total(totals, n, t0, t1, t2, t3):
    store_shared_u32x4(totals + u32(512 * n), as_u32(t0), as_u32(t1), as_u32(t2), as_u32(t3))


@device
def join_chunk(totals, total_m, total_l, m, l, o):
    """Join the chunk (m, l, o) to the chunks before."""
    total_m[0], total0, factor0 = join_references(total_m[0], m[0])
    total_m[1], total1, factor1 = join_references(total_m[1], m[1])
    total_l[0], total_l[1] = joined(total_l[0], total0, l[0], factor0), joined(total_l[1], total1, l[2], factor1)
    for n in consteval(range(HEAD_DIM // 8)):
        t0, t1, t2, t3 = load_total(totals, n)
        store_total(totals, n, joined(t0, total0, o[n, 0], factor0), joined(t1, total0, o[n, 1], factor0),
                    joined(t2, total1, o[n, 2], factor1), joined(t3, total1, o[n, 3], factor1))


@kernel((ptr(bf16), ptr(bf16), ptr(i64), ptr(i64), ptr(i32), ptr(bf16), f32, f32, *[u32] * 6),
        threads=lambda THREADS, **_: THREADS, constants=LAYOUT, shared=shared_bytes, prebuild=PREBUILT)
def attention_prefill_kernel(q, kv, query_start_loc, seq_lens, block_table, out, scale_log2, cap_scale, window, num_sequences,
                             group, table_width, q_stride, plane):
    """window: keys that a query sees, itself included. group: query heads per KV head. In vectors: q_stride from token to token,
    plane from keys to values."""
    starts, buffers = cuda.shared.array(consteval(MOST_SEQUENCES + 1), u32), cuda.shared.array(0, u32)
    tid, lane, warp = u32(cuda.threadIdx.x), u32(lane_id()), u32(cuda.threadIdx.x) >> u32(5)
    sequence = tid
    while sequence < num_sequences:
        new_tokens = u32(query_start_loc[sequence + 1] - query_start_loc[sequence])
        tiles = (new_tokens * group + u32(THREADS // 2 - 1)) // u32(THREADS // 2)
        starts[sequence + 1] = select(new_tokens > u32(1), tiles, u32(0))        # attention_decode.py has those with one
        sequence = sequence + u32(THREADS)
    add_up(starts, num_sequences)
    if u32(cuda.blockIdx.x) < starts[num_sequences]:
        tile = starts[num_sequences] - u32(1) - u32(cuda.blockIdx.x)
        sequence = sequence_of(starts, num_sequences, tile)
        first_token = u32(query_start_loc[sequence])
        num_rows = (u32(query_start_loc[sequence + 1]) - first_token) * group
        first_row = (tile - starts[sequence]) * u32(THREADS // 2)
        past_row = select(first_row + u32(THREADS // 2) < num_rows, first_row + u32(THREADS // 2), num_rows)
        first_position = u32(seq_lens[sequence]) - num_rows // group        # of the first new token
        top_end = first_position + first_row // group + u32(1)              # the first row sees the keys before it
        end = first_position + (past_row - u32(1)) // group + u32(1)        # the last row those before this
        begin, last_begin = first_visible(top_end, window), first_visible(end, window)

        head_start, q_heads = u32(cuda.blockIdx.y) * u32(HEAD_DIM // 8), u32(cuda.gridDim.y) * group
        queries = shared_address(buffers) + u32(STAGES * 2 * TILE * ROW_BYTES)
        totals, query_bytes = queries, u32(16 * HEAD_DIM * 4)                    # a warp's totals take the place of its queries
        if not QUERIES_STAY:
            totals, query_bytes = queries + u32(THREADS // 2 * ROW_BYTES), u32(16 * ROW_BYTES)
        queries_of_warp = queries + warp * query_bytes
        totals = totals + warp * u32(16 * HEAD_DIM * 4) + lane * u32(16)
        start_queries(queries, query_bytes, q, first_token * q_stride + head_start * group, q_stride, group, first_row, num_rows)

        fragments = cuda.local.array(consteval((HEAD_DIM // 16 if QUERIES_STAY else 1, 4)), u32)
        s, p = cuda.local.array(consteval((TILE // 8, 4)), f32), cuda.local.array(consteval((TILE // 8, 2)), u32)
        m, l, o = cuda.local.array(2, f32), cuda.local.array(4, f32), cuda.local.array(consteval((HEAD_DIM // 8, 4)), f32)
        total_m, total_l = cuda.local.array(2, f32), cuda.local.array(2, f32)
        total_m[0], total_m[1], total_l[0], total_l[1] = f32(-INFINITY), f32(-INFINITY), f32(0), f32(0)
        begin_chunk(m, l, o)
        warp_row = first_row + warp * u32(16)
        warp_past = select(warp_row + u32(16) < num_rows, warp_row + u32(16), num_rows)
        warp_end = first_position + (warp_past - u32(1)) // group + u32(1)
        if warp_row >= num_rows:
            warp_end = u32(0)

        first = begin // u32(TILE) * u32(TILE)
        ahead, position = first, first
        filling, reading, buffer_bytes = shared_address(buffers), shared_address(buffers), u32(2 * TILE * ROW_BYTES)
        past_buffers = filling + buffer_bytes * u32(STAGES)
        while position < end:                    # a step starts copying one tile and computes the one STAGES - 1 steps before
            cp_async_wait(consteval(max(STAGES - 2, 0)))
            cuda.syncthreads()
            if ahead < end:
                start_tile(filling, kv, block_table, sequence * table_width, ahead, begin, end, head_start,
                           u32(cuda.gridDim.y) * u32(HEAD_DIM // 8), plane)
            cp_async_commit()
            if STAGES == 1:
                cp_async_wait(0)
                cuda.syncthreads()
            ahead, filling = ahead + u32(TILE), filling + buffer_bytes
            if filling == past_buffers:
                filling = shared_address(buffers)
            if ahead >= first + u32(STAGES * TILE):
                if position == first:
                    if QUERIES_STAY:
                        for k in consteval(range(HEAD_DIM // 16)):
                            fragments[k, 0], fragments[k, 1], fragments[k, 2], fragments[k, 3] = fragment_a(
                                queries_of_warp + u32(k // 4 * ATOM), u32(0), u32(2 * k % 8), u32(ROW_BYTES))
                        cuda.syncwarp()
                    for n in consteval(range(HEAD_DIM // 8)):
                        store_total(totals, n, f32(0), f32(0), f32(0), f32(0))
                if position < warp_end:                                          # else no row of this warp sees the tile
                    if QUERIES_STAY:
                        multiply_keys(fragments, reading, s)
                    else:
                        multiply_keys_of_shared(queries_of_warp, reading, s)
                    if SOFTCAP:
                        cap_scores(s, cap_scale)
                    if position + u32(TILE) > top_end or position < last_begin:
                        for half in consteval(range(2)):
                            row_end = first_position + (warp_row + u32(8 * half) + (lane >> u32(2))) // group + u32(1)
                            low = first_visible(row_end, window)
                            hide_keys(s, position, low, row_end - low, half)
                    factor0 = weigh(s, p, m, scale_log2, 0)
                    factor1 = weigh(s, p, m, scale_log2, 1)
                    rescale(o, l, factor0, factor1)
                    add_values(p, reading + u32(TILE * ROW_BYTES), o, l)
                position = position + u32(TILE)
                if position % u32(CHUNK) == u32(0) or position >= end:
                    join_chunk(totals, total_m, total_l, m, l, o)
                    begin_chunk(m, l, o)
                reading = reading + buffer_bytes
                if reading == past_buffers:
                    reading = shared_address(buffers)

        for half in consteval(range(2)):
            row = warp_row + u32(8 * half) + (lane >> u32(2))
            if row < num_rows:
                token, inverse = row // group, div(f32(1), total_l[half])
                start = (first_token + token) * q_heads + u32(cuda.blockIdx.y) * group + (row - token * group)
                for n in consteval(range(HEAD_DIM // 8)):
                    t = load_total(totals, n)
                    store_u32(out, start * u32(HEAD_DIM // 2) + u32(4 * n) + (lane & u32(3)),
                              f32_to_bf16x2(normalised(t[2 * half], inverse), normalised(t[2 * half + 1], inverse)))
