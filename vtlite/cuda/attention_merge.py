"""Joins the chunks that attention_decode left: O' = O 2^(M - M') + o 2^(m - M'), the result O / L

o [S, chunks, H, D] f32, (m, l) [S, chunks, H, 2] f32 -> out [T, H D] bf16. A warp per sequence and query head.
Order: chunks in ascending order, each by attention_tile's join; AHEAD of them are loaded before the first is joined.
Bytes: (4 D + 8) per chunk and query head; bound by latency.
"""

from vtlite.cuda.attention_decode import chunks_of
from vtlite.cuda.attention_tile import HEAD_DIM, INFINITY, join_references, joined, normalised
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import bf16, consteval, cuda, div, f32, f32_to_bf16, i64, ptr, select, u32

AHEAD = 8                        # chunks loaded at once


@kernel((ptr(f32), ptr(f32), ptr(i64), ptr(i64), ptr(bf16), u32, u32), threads=32,
        constants=("HEAD_DIM",), prebuild=[{"HEAD_DIM": head_dim} for head_dim in (64, 96, 128, 256)])
def attention_merge_kernel(partial_o, partial_ml, query_start_loc, seq_lens, out, window, max_chunks):
    head, num_heads, sequence, lane = u32(cuda.blockIdx.x), u32(cuda.gridDim.x), u32(cuda.blockIdx.y), u32(cuda.threadIdx.x)
    row = u32(query_start_loc[sequence])
    if query_start_loc[sequence + 1] - query_start_loc[sequence] == 1:
        chunks = chunks_of(query_start_loc, seq_lens, sequence, window)
        total_m, total_l, total_o = f32(-INFINITY), f32(0), cuda.local.array(consteval(HEAD_DIM // 32), f32)
        m, l = cuda.local.array(AHEAD, f32), cuda.local.array(AHEAD, f32)
        o = cuda.local.array(consteval((AHEAD, HEAD_DIM // 32)), f32)
        for i in consteval(range(HEAD_DIM // 32)):
            total_o[i] = f32(0)
        first = u32(0)
        while first < chunks:
            for a in consteval(range(AHEAD)):
                chunk = select(first + u32(a) < chunks, first + u32(a), first)
                place = (sequence * max_chunks + chunk) * num_heads + head
                m[a], l[a] = partial_ml[place * 2], partial_ml[place * 2 + 1]
                for i in consteval(range(HEAD_DIM // 32)):
                    o[a, i] = partial_o[place * u32(HEAD_DIM) + lane + u32(32 * i)]
            for a in consteval(range(AHEAD)):
                if first + u32(a) < chunks:
                    total_m, total_factor, factor = join_references(total_m, m[a])
                    total_l = joined(total_l, total_factor, l[a], factor)
                    for i in consteval(range(HEAD_DIM // 32)):
                        total_o[i] = joined(total_o[i], total_factor, o[a, i], factor)
            first = first + u32(AHEAD)
        inverse = select(chunks == u32(0), f32(0), div(f32(1), total_l))         # a padded row becomes zeros
        for i in consteval(range(HEAD_DIM // 32)):
            out[(row * num_heads + head) * u32(HEAD_DIM) + lane + u32(32 * i)] = f32_to_bf16(normalised(total_o[i], inverse))
