"""Joins the chunks that attention_decode left: O' = O 2^(M - M') + o 2^(m - M'), the result O / L

o [S, chunks, H, D] f32, (m, l) [S, chunks, H, 2] f32 -> out [T, H D] bf16. A block per sequence and query head, a thread per
column. A warp goes through AHEAD chunks at once: all their loads are in flight together, and lane i works out the factors of
the i-th from the running maximum of m, which no order changes.
Order: chunks in ascending order, each by attention_tile's join.
Bytes: (4 D + 8) per chunk and query head; bound by latency.
"""

from vtlite.cuda.attention_decode import chunks_of
from vtlite.cuda.attention_tile import HEAD_DIM, INFINITY, join_references, joined, normalised
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (bf16, consteval, cuda, div, f32, f32_to_bf16, fmax, i64, lane_id, ptr, select, shfl_idx, shfl_up,
                              u32)

AHEAD = 32                       # chunks loaded at once, one per lane


@device
def references_before(total_m, m):
    """Of each lane the reference of all chunks before its own: those joined so far and the lanes below."""
    lane = u32(lane_id())
    for distance in consteval((1, 2, 4, 8, 16)):
        below = shfl_up(m, u32(distance))
        m = select(lane >= u32(distance), fmax(m, below), m)
    below = shfl_up(m, u32(1))
    return select(lane == u32(0), total_m, fmax(total_m, below))


@kernel((ptr(f32), ptr(f32), ptr(i64), ptr(i64), ptr(bf16), u32, u32), threads=lambda HEAD_DIM: HEAD_DIM,
        constants=("HEAD_DIM",), prebuild=[{"HEAD_DIM": head_dim} for head_dim in (64, 96, 128, 256)])
def attention_merge_kernel(partial_o, partial_ml, query_start_loc, seq_lens, out, window, max_chunks):
    head, num_heads, sequence = u32(cuda.blockIdx.x), u32(cuda.gridDim.x), u32(cuda.blockIdx.y)
    column, lane = u32(cuda.threadIdx.x), u32(lane_id())
    if query_start_loc[sequence + 1] - query_start_loc[sequence] == 1:
        chunks = chunks_of(query_start_loc, seq_lens, sequence, window)
        total_m, total_l, total_o = f32(-INFINITY), f32(0), f32(0)
        o = cuda.local.array(AHEAD, f32)
        first = u32(0)
        while first < chunks:
            for i in consteval(range(AHEAD)):
                chunk = select(first + u32(i) < chunks, first + u32(i), first)
                o[i] = partial_o[((sequence * max_chunks + chunk) * num_heads + head) * u32(HEAD_DIM) + column]
            chunk = select(first + lane < chunks, first + lane, first)
            place = (sequence * max_chunks + chunk) * num_heads + head
            m, l = select(first + lane < chunks, partial_ml[place * 2], f32(-INFINITY)), partial_ml[place * 2 + 1]
            reference, total_factor, factor = join_references(references_before(total_m, m), m)
            for i in consteval(range(AHEAD)):
                if first + u32(i) < chunks:
                    of_total, of_chunk = shfl_idx(total_factor, u32(i)), shfl_idx(factor, u32(i))
                    total_l = joined(total_l, of_total, shfl_idx(l, u32(i)), of_chunk)
                    total_o = joined(total_o, of_total, o[i], of_chunk)
            total_m = shfl_idx(reference, u32(AHEAD - 1))
            first = first + u32(AHEAD)
        inverse = select(chunks == u32(0), f32(0), div(f32(1), total_l))         # a padded row becomes zeros
        row = u32(query_start_loc[sequence])
        out[(row * num_heads + head) * u32(HEAD_DIM) + column] = f32_to_bf16(normalised(total_o, inverse))
