"""Gated delta rule over a prompt, second pass: along the chunks of each sequence, with what gdn_chunk.py prepared.

For a value head, S [K, V] the state before a chunk, q, k, v its rows, and T, B and the four scales as there:
    R = v - scale_0 (k S)                what the state lacks of the values
    D = T R                              the deltas
    o = scale_1 (q S) + B D
    S = scale_3 S + k^T (scale_2 D)
qkv [T, C] bf16 as in gdn_decode.py; state [slots, Hv, K, V] f32 or bf16, passed as u32: a sequence reads its slot and replaces
it, and a chunk that the plan (gdn_plan.py) gives a slot of its own leaves the state there too; o [T, Hv, V] bf16.
A warp holds 16 columns of S as S^T [16, K], in f32 accumulators, from the first chunk to the last. All products are written
transposed, so that each takes the result of the one before as its left operand from the same registers: S^T k^T, R^T T^T,
D^T B^T, D^T k. Warps never meet but to share the tiles. Row g of a fragment is column 2 g of the 16, row g + 8 column 2 g + 1.
Precision: k and q are exact in bf16; S, R, D, T and B enter the tensor core as hi + lo, two bf16 with 16 bits together. A bf16
state is rounded after every chunk, wherever it goes, so that it is exact as well: its lo is zero, and left out.
Order: steps of k16 ascending; within a step hi, then lo (S and D against k or q), or hi hi, lo hi, hi lo (R T and D B).
A sequence's bits depend on it alone, and not on where a batch cuts it, as long as it is between chunks.
Bytes: 65 KiB per chunk and block (K = 128), mostly from L2; bound by the tensor core: 504 steps per chunk and warp, in a chain of
products that nothing shortens but fewer columns per multiprocessor.
"""

from vtlite.cuda.gdn_tiles import CHUNK, accumulate, load_rows, low_part
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (anew, as_u32, bf16, bf16x2_high, bf16x2_low, consteval, cp_async_16, cp_async_16_or_zero,
                              cp_async_commit, cp_async_wait, cuda, f32, f32_to_bf16x2, fma, i32, load_u32, load_u32x2, mul,
                              ptr, shared_address, store_u32, store_u32x2, u32, u32_as_f32)
from vtlite.cuda.tiles import fragments_b, fragments_b_transposed, swizzled

K, V = 128, 128                  # K 64 or 128
WARPS = 4                        # per block, 16 columns of S each; a divisor of V / 16
STAGES = 2                       # tiles of as many chunks in shared memory, 1 or 2
BF16_STATE = False

PLANE = CHUNK * CHUNK * 2        # bytes
PREBUILT = [{"K": dim, "V": dim, "WARPS": warps, "STAGES": stages, "BF16_STATE": narrow}
            for narrow in (False, True) for dim, warps in ((64, 4), (128, 4), (128, 8)) for stages in (1, 2)]


@device
def stage_bytes(K):
    """q, k, the four planes of T and B, the four scales."""
    return 4 * CHUNK * K + 4 * PLANE + 16 * CHUNK


@device
def load_stage(stage, qkv, q_vector, k_vector, row_stride, num_rows, transforms, scales, unit, tid):
    """Start copying the tiles of one chunk."""
    load_rows(stage, qkv, q_vector, row_stride, num_rows, tid)
    load_rows(stage + u32(2 * CHUNK * K), qkv, k_vector, row_stride, num_rows, tid)
    for i in consteval(range(4 * CHUNK * 8 // (32 * WARPS))):
        piece = tid + u32(i * 32 * WARPS)
        row, vector = piece >> u32(3) & u32(CHUNK - 1), piece & u32(7)
        plane = stage + u32(4 * CHUNK * K) + (piece >> u32(9)) * u32(PLANE)
        cp_async_16_or_zero(plane + swizzled(row, vector, u32(2 * CHUNK)), transforms, unit * u32(4 * CHUNK * 8) + piece,
                            vector <= row >> u32(3))
    for i in consteval(range(0, CHUNK, 32 * WARPS)):
        vector = u32(i) + tid
        if vector < u32(CHUNK):
            cp_async_16(stage + u32(4 * CHUNK * K + 4 * PLANE) + vector * u32(16), scales, unit * u32(CHUNK) + vector)


@device
def clear(acc):
    for j in consteval(range(8)):
        for e in consteval(range(4)):
            acc[j, e] = f32(0)


@device
def pack(high, low, acc):
    """Accumulators [16, 64] as the left operand of the next product: four steps of four words each, in two parts."""
    for step in consteval(range(4)):
        for half in consteval(range(2)):
            for row in consteval(range(2)):
                x, y = acc[2 * step + half, 2 * row], acc[2 * step + half, 2 * row + 1]
                high[step, 2 * half + row] = f32_to_bf16x2(x, y)
                low[step, 2 * half + row] = low_part(high[step, 2 * half + row], x, y)


@device
def times_lower(acc, high, low, plane):
    """acc += X L^T for X packed and the lower triangular L in its two planes."""
    for j in consteval(range(0, 8, 2)):
        for step in consteval(range(j // 2 + 1)):
            b0, b1, b2, b3 = fragments_b(plane, u32(8 * j), u32(2 * step), u32(2 * CHUNK))
            c0, c1, c2, c3 = fragments_b(plane + u32(PLANE), u32(8 * j), u32(2 * step), u32(2 * CHUNK))
            accumulate(acc, j, high[step, 0], high[step, 1], high[step, 2], high[step, 3], b0, b1)
            accumulate(acc, j + 1, high[step, 0], high[step, 1], high[step, 2], high[step, 3], b2, b3)
            accumulate(acc, j, low[step, 0], low[step, 1], low[step, 2], low[step, 3], b0, b1)
            accumulate(acc, j + 1, low[step, 0], low[step, 1], low[step, 2], low[step, 3], b2, b3)
            accumulate(acc, j, high[step, 0], high[step, 1], high[step, 2], high[step, 3], c0, c1)
            accumulate(acc, j + 1, high[step, 0], high[step, 1], high[step, 2], high[step, 3], c2, c3)


@device
def read_state(kS, qS, S, q_tile, k_tile):
    """kS = S^T k^T and qS = S^T q^T, [16, 64]."""
    for k in consteval(range(K // 16)):
        a0, a1 = f32_to_bf16x2(S[2 * k, 0], S[2 * k, 1]), f32_to_bf16x2(S[2 * k, 2], S[2 * k, 3])
        a2, a3 = f32_to_bf16x2(S[2 * k + 1, 0], S[2 * k + 1, 1]), f32_to_bf16x2(S[2 * k + 1, 2], S[2 * k + 1, 3])
        if not BF16_STATE:
            l0, l1 = low_part(a0, S[2 * k, 0], S[2 * k, 1]), low_part(a1, S[2 * k, 2], S[2 * k, 3])
            l2, l3 = low_part(a2, S[2 * k + 1, 0], S[2 * k + 1, 1]), low_part(a3, S[2 * k + 1, 2], S[2 * k + 1, 3])
        for j in consteval(range(0, 8, 2)):
            b0, b1, b2, b3 = fragments_b(k_tile, u32(8 * j), u32(2 * k), u32(2 * K))
            c0, c1, c2, c3 = fragments_b(q_tile, u32(8 * j), u32(2 * k), u32(2 * K))
            accumulate(kS, j, a0, a1, a2, a3, b0, b1)
            accumulate(kS, j + 1, a0, a1, a2, a3, b2, b3)
            accumulate(qS, j, a0, a1, a2, a3, c0, c1)
            accumulate(qS, j + 1, a0, a1, a2, a3, c2, c3)
            if not BF16_STATE:
                accumulate(kS, j, l0, l1, l2, l3, b0, b1)
                accumulate(kS, j + 1, l0, l1, l2, l3, b2, b3)
                accumulate(qS, j, l0, l1, l2, l3, c0, c1)
                accumulate(qS, j + 1, l0, l1, l2, l3, c2, c3)


@device
def add_to_state(S, high, low, k_tile):
    """S^T += X k for X [16, 64] packed."""
    for step in consteval(range(4)):
        for n in consteval(range(0, K // 8, 2)):
            b0, b1, b2, b3 = fragments_b_transposed(k_tile, u32(16 * step), u32(n), u32(2 * K))
            accumulate(S, n, high[step, 0], high[step, 1], high[step, 2], high[step, 3], b0, b1)
            accumulate(S, n + 1, high[step, 0], high[step, 1], high[step, 2], high[step, 3], b2, b3)
            accumulate(S, n, low[step, 0], low[step, 1], low[step, 2], low[step, 3], b0, b1)
            accumulate(S, n + 1, low[step, 0], low[step, 1], low[step, 2], low[step, 3], b2, b3)


@device
def state_index(slot, column, lane):
    """In pairs of elements, `slot` counting heads: row 2 q of S, columns 2 g and 2 g + 1 of this warp's 16."""
    return (slot * u32(K) + (lane & u32(3)) * u32(2)) * u32(V // 2) + (column >> u32(1)) + (lane >> u32(2))


@device
def load_state(S, state, first):
    for n in consteval(range(K // 8)):
        for e in consteval(range(2)):
            i = first + u32((8 * n + e) * (V // 2))
            if BF16_STATE:
                pair = load_u32(state, i)
                S[n, e], S[n, 2 + e] = bf16x2_low(pair), bf16x2_high(pair)
            else:
                even, odd = load_u32x2(state, i)
                S[n, e], S[n, 2 + e] = u32_as_f32(even), u32_as_f32(odd)


@device
def store_state(S, state, first):
    for n in consteval(range(K // 8)):
        for e in consteval(range(2)):
            i = first + u32((8 * n + e) * (V // 2))
            if BF16_STATE:
                store_u32(state, i, f32_to_bf16x2(S[n, e], S[n, 2 + e]))
            else:
                store_u32x2(state, i, as_u32(S[n, e]), as_u32(S[n, 2 + e]))


@device
def round_to_bf16(S):
    for n in consteval(range(K // 8)):
        for e in consteval(range(2)):
            pair = f32_to_bf16x2(S[n, e], S[n, 2 + e])
            S[n, e], S[n, 2 + e] = bf16x2_low(pair), bf16x2_high(pair)


@kernel((ptr(bf16), ptr(bf16), ptr(f32), ptr(u32), ptr(i32), ptr(i32), ptr(bf16), u32, u32),
        threads=lambda WARPS, **_: 32 * WARPS, constants=("K", "V", "WARPS", "STAGES", "BF16_STATE"), prebuild=PREBUILT,
        shared=lambda K, STAGES, **_: STAGES * stage_bytes(K))
def scan_kernel(qkv, transforms, scales, state, sequences, chunks, o, k_heads, per_k_head):
    """Block (part of V, value head, sequence). per_k_head: value heads that share a key head."""
    tid, lane, warp = u32(cuda.threadIdx.x), u32(cuda.threadIdx.x) & u32(31), u32(cuda.threadIdx.x) >> u32(5)
    column = (u32(cuda.blockIdx.x) * u32(WARPS) + warp) * u32(16)
    head, sequence = u32(cuda.blockIdx.y), u32(cuda.blockIdx.z)
    k_head, v_heads = head // per_k_head, k_heads * per_k_head
    row_size = u32(2 * K) * k_heads + u32(V) * v_heads
    first_row, num_rows = u32(sequences[sequence * u32(4)]), u32(sequences[sequence * u32(4) + u32(1)])
    slot, first_chunk = u32(sequences[sequence * u32(4) + u32(2)]), u32(sequences[sequence * u32(4) + u32(3)])
    memory = cuda.shared.array(0, f32)
    S, words = cuda.local.array(consteval((K // 8, 4)), f32), cuda.local.array((8, 2), u32)
    kS, qS = cuda.local.array((8, 4), f32), cuda.local.array((8, 4), f32)
    high, low = cuda.local.array((4, 4), u32), cuda.local.array((4, 4), u32)
    tiles, stage, pair = shared_address(memory), u32(0), (lane & u32(3)) * u32(2)
    v_column = (u32(2 * K) * k_heads + head * u32(V) + column >> u32(1)) + (lane >> u32(2))       # in pairs
    o_column = (head * u32(V) + column >> u32(1)) + (lane >> u32(2))
    q_vector = (first_row * row_size >> u32(3)) + k_head * u32(K // 8)
    k_vector = q_vector + k_heads * u32(K // 8)
    load_stage(tiles, qkv, q_vector, k_vector, row_size >> u32(3), num_rows, transforms, scales, first_chunk * v_heads + head, tid)
    cp_async_commit()
    load_state(S, state, state_index(slot * v_heads + head, column, lane))
    done, chunk = u32(0), first_chunk                                                  # rows, and the chunk after them
    while done < num_rows:
        tid = anew(tid)                                                                # no register keeps addresses of copies
        saved_slot = chunks[chunk * u32(2) + u32(1)]
        for j in consteval(range(8)):
            for e in consteval(range(2)):
                row = done + u32(8 * j + e) + pair
                words[j, e] = u32(0)
                if row < num_rows:
                    words[j, e] = load_u32(qkv, (first_row + row) * (row_size >> u32(1)) + v_column)
        following, tile = done + u32(CHUNK), tiles + stage * u32(stage_bytes(K))
        advance = following * (row_size >> u32(3))
        if STAGES == 2:
            if following < num_rows:
                load_stage(tiles + (u32(1) - stage) * u32(stage_bytes(K)), qkv, q_vector + advance, k_vector + advance,
                           row_size >> u32(3), num_rows - following, transforms, scales, (chunk + u32(1)) * v_heads + head, tid)
            cp_async_commit()
            cp_async_wait(1)
        else:
            cp_async_wait(0)
        cuda.syncthreads()
        scale = stage * u32(stage_bytes(K) // 4) + u32(CHUNK * K + PLANE)   # in f32
        clear(kS)
        clear(qS)
        read_state(kS, qS, S, tile, tile + u32(2 * CHUNK * K))
        for j in consteval(range(8)):                                                  # R, and the state's part of o
            for e in consteval(range(2)):
                token = scale + u32(8 * j + e) + pair
                kS[j, e] = fma(-memory[token], kS[j, e], bf16x2_low(words[j, e]))
                kS[j, 2 + e] = fma(-memory[token], kS[j, 2 + e], bf16x2_high(words[j, e]))
                qS[j, e] = mul(memory[token + u32(CHUNK)], qS[j, e])
                qS[j, 2 + e] = mul(memory[token + u32(CHUNK)], qS[j, 2 + e])
        pack(high, low, kS)
        clear(kS)
        times_lower(kS, high, low, tile + u32(4 * CHUNK * K))                    # D
        pack(high, low, kS)
        times_lower(qS, high, low, tile + u32(4 * CHUNK * K + 2 * PLANE))        # o
        for j in consteval(range(8)):
            for e in consteval(range(2)):
                row = done + u32(8 * j + e) + pair
                if row < num_rows:
                    store_u32(o, (first_row + row) * v_heads * u32(V // 2) + o_column, f32_to_bf16x2(qS[j, e], qS[j, 2 + e]))
        for j in consteval(range(8)):
            for e in consteval(range(2)):
                weight = memory[scale + u32(2 * CHUNK + 8 * j + e) + pair]
                kS[j, e], kS[j, 2 + e] = mul(weight, kS[j, e]), mul(weight, kS[j, 2 + e])
        pack(high, low, kS)
        decay = memory[scale + u32(3 * CHUNK)]
        for n in consteval(range(K // 8)):
            for e in consteval(range(4)):
                S[n, e] = mul(decay, S[n, e])
        add_to_state(S, high, low, tile + u32(2 * CHUNK * K))
        if BF16_STATE:
            round_to_bf16(S)
        if saved_slot >= i32(0):
            store_state(S, state, state_index(u32(saved_slot) * v_heads + head, column, lane))
        cuda.syncthreads()                                                             # the tiles have been read
        if STAGES == 2:
            stage = u32(1) - stage
        elif following < num_rows:
            load_stage(tiles, qkv, q_vector + advance, k_vector + advance, row_size >> u32(3), num_rows - following, transforms,
                       scales, (chunk + u32(1)) * v_heads + head, tid)
            cp_async_commit()
        done, chunk = following, chunk + u32(1)
    store_state(S, state, state_index(slot * v_heads + head, column, lane))
