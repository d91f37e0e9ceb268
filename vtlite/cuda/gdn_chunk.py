"""Gated delta rule over a prompt, first pass: what each chunk of 64 tokens can work out before it knows the state.

For a value head and a chunk, with rows q, k [64, K], G the running sum of g, and D_ij = e^(G_i - G_j) for i >= j, else 0:
    A = strictly lower part of (beta_i D_ij k_i . k_j / (|k_i| |k_j|))
    T = (I + A)^-1 diag(beta)                                      takes what the values miss to the deltas
    B = D_ij q_i . k_j / (|q_i| |k_j| sqrt(K))                     what token i reads of delta j
    scales = e^G / |k|,   e^G / (|q| sqrt(K)),   e^(G_last - G) / |k|,   e^G_last
(Yang et al. 2024, arXiv:2406.06484 and 2412.06464; gdn_scan.py is the second pass.) qkv, a, b, A_log, dt_bias as in
gdn_decode.py; rows beyond a sequence's end count as zeros. Out: transforms [N, Hv, 4, 64, 64] bf16, the high and the low part of
T and of B (hi = bf16(x), lo = bf16(x - hi): 16 bits); scales [N, Hv, 4, 64] f32. N chunks.
Precision: q and k enter the tensor core as the bf16 they are, so the products are exact; lengths and decays multiply them in f32.
T comes from forward substitution in f32.
Order: products in ascending steps of k16; squares by fma in ascending element; G within each half of 32 tokens by doubling
distances, the second half then added to the sum of the first; substitution in ascending row. A chunk's bits depend on it alone.
Bytes: 4 K per token and key head in, 33 KiB per chunk and value head out; bound by the exponentials and the substitution.
"""

from vtlite.cuda.gdn_gates import log_decay, share
from vtlite.cuda.gdn_tiles import CHUNK, accumulate, load_rows, low_part
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (bf16, bf16x2_high, bf16x2_low, consteval, cp_async_commit, cp_async_wait, cuda, f32,
                              f32_to_bf16x2, fma, i32, load_shared_u32x4, mul, ptr, select, shared_address, shfl_idx,
                              shfl_up, store_u32, store_u32x4, u32, u32_as_f32)
from vtlite.cuda.tiles import fragment_a, fragments_b, swizzled
from vtlite.elementary import exp, rsqrt
from vtlite.reference.gdn import L2_EPS

COLUMN = 68                      # f32 from one column of A in shared memory to the next: no two lanes meet in a bank

K = 128                          # 64 or 128
WARPS = 4                        # of 16 rows each
MOST_SHARED_KEYS = 8             # value heads per key head

PLANE = CHUNK * CHUNK


@device
def inverse_length(tile, row):
    """1 / |x| of a row of a tile."""
    total = f32(0)
    for vector in range(K // 8):
        words = load_shared_u32x4(tile + swizzled(row, u32(vector), u32(2 * K)))
        for i in consteval(range(4)):
            total = fma(bf16x2_low(words[i]), bf16x2_low(words[i]), total)
            total = fma(bf16x2_high(words[i]), bf16x2_high(words[i]), total)
    return rsqrt(total + f32(L2_EPS))


@device
def running_sum(x, lane):
    """The sum of x over the lanes up to this one."""
    for distance in consteval((1, 2, 4, 8, 16)):
        before = shfl_up(x, u32(distance))
        x = select(lane >= u32(distance), x + before, x)
    return x


@device
def row_products(acc, rows, columns, warp):
    """acc = rows 16 warp .. 16 warp + 15 of one tile times all rows of another, in blocks of 8 columns."""
    for j in consteval(range(8)):
        for e in consteval(range(4)):
            acc[j, e] = f32(0)
    for k in consteval(range(K // 16)):
        a0, a1, a2, a3 = fragment_a(rows, warp * u32(16), u32(2 * k), u32(2 * K))
        for j in consteval(range(0, 8, 2)):
            b0, b1, b2, b3 = fragments_b(columns, u32(8 * j), u32(2 * k), u32(2 * K))
            accumulate(acc, j, a0, a1, a2, a3, b0, b1)
            accumulate(acc, j + 1, a0, a1, a2, a3, b2, b3)


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), ptr(f32), ptr(f32), ptr(i32), ptr(i32), ptr(bf16), ptr(f32), u32, u32, u32, u32),
        threads=32 * WARPS, constants=("K",), prebuild=[{"K": 64}, {"K": 128}],
        shared=lambda K, **_: max(4 * CHUNK * K, 8 * CHUNK * (COLUMN + CHUNK)))
def chunk_kernel(qkv, a, b, A_log, dt_bias, sequences, chunks, transforms, scales, k_heads, per_k_head, row_stride,
                 gate_stride):
    """Block (key head, chunk). per_k_head: value heads that share a key head. row_stride: 16-byte vectors from one row of qkv
    to the next, gate_stride: elements from one token of a, and of b, to the next."""
    tid, lane, warp = u32(cuda.threadIdx.x), u32(cuda.threadIdx.x) & u32(31), u32(cuda.threadIdx.x) >> u32(5)
    g, quad = lane >> u32(2), lane & u32(3)
    k_head, chunk = u32(cuda.blockIdx.x), u32(cuda.blockIdx.y)
    sequence = u32(chunks[chunk * u32(2)])
    start = (chunk - u32(sequences[sequence * u32(4) + u32(3)])) * u32(CHUNK)
    first_row, num_rows = u32(sequences[sequence * u32(4)]) + start, u32(sequences[sequence * u32(4) + u32(1)]) - start
    dynamic = cuda.shared.array(0, f32)
    G = cuda.shared.array((MOST_SHARED_KEYS, CHUNK), f32)
    beta = cuda.shared.array((MOST_SHARED_KEYS, CHUNK), f32)
    q_inverse, k_inverse = cuda.shared.array(CHUNK, f32), cuda.shared.array(CHUNK, f32)
    q_tile = shared_address(dynamic)
    k_tile = q_tile + u32(CHUNK * 2 * K)
    load_rows(q_tile, qkv, first_row * row_stride + k_head * u32(K // 8), row_stride, num_rows, tid)
    load_rows(k_tile, qkv, first_row * row_stride + (k_heads + k_head) * u32(K // 8), row_stride, num_rows, tid)
    cp_async_commit()
    for j in range(warp, per_k_head, WARPS):                               # gates of a head by a warp
        head = k_head * per_k_head + u32(j)
        before = f32(0)
        for half in consteval(range(2)):
            token = u32(32 * half) + lane
            decay, weight = f32(0), f32(0)
            if token < num_rows:
                gate = (first_row + token) * gate_stride + head
                decay, weight = log_decay(a[gate], A_log[head], dt_bias[head]), share(b[gate])
            total = running_sum(decay, lane)
            if half:
                total = before + total
            G[u32(j), token], beta[u32(j), token] = total, weight
            before = shfl_idx(total, u32(31))
    cp_async_wait(0)
    cuda.syncthreads()
    if tid < u32(CHUNK):
        q_inverse[tid] = mul(inverse_length(q_tile, tid), f32(consteval(K**-0.5)))
    else:
        k_inverse[tid - u32(CHUNK)] = inverse_length(k_tile, tid - u32(CHUNK))
    kk, qk = cuda.local.array((8, 4), f32), cuda.local.array((8, 4), f32)              # of rows 16 warp + g and 16 warp + g + 8
    row_products(kk, k_tile, k_tile, warp)
    row_products(qk, q_tile, k_tile, warp)
    cuda.syncthreads()                                                                 # the tiles make room for A
    A, X = u32(0), u32(2 * CHUNK * COLUMN)                                             # two of each in shared memory
    first_unit = (chunk * k_heads + k_head) * per_k_head                               # a unit: a value head of a chunk
    for pair in range(0, per_k_head, 2):
        heads = select(u32(pair) + u32(1) < per_k_head, u32(2), u32(1))
        for i in range(heads):
            j = u32(pair) + u32(i)
            write_scales(scales, first_unit + j, G, j, q_inverse, k_inverse, tid)
            write_A_and_B(dynamic, A + u32(i) * u32(CHUNK * COLUMN), transforms, first_unit + j, kk, qk, G, beta, j, q_inverse,
                          k_inverse, warp, g, quad)
        cuda.syncthreads()
        mine = tid // u32(CHUNK)                                                       # 64 threads for each head, a column each
        if mine < heads:
            solve(dynamic, A + mine * u32(CHUNK * COLUMN), X + mine * u32(PLANE), tid % u32(CHUNK))
        cuda.syncthreads()
        for i in range(heads):
            j = u32(pair) + u32(i)
            write_T(transforms, first_unit + j, dynamic, X + u32(i) * u32(PLANE), beta, j, tid)


@device
def load_shared_f32x4(memory, i):
    """Four f32 from element i of the shared array on."""
    a, b, c, d = load_shared_u32x4(shared_address(memory) + u32(4) * i)
    return u32_as_f32(a), u32_as_f32(b), u32_as_f32(c), u32_as_f32(d)


@device
def write_scales(scales, unit, G, j, q_inverse, k_inverse, tid):
    if tid < u32(CHUNK):
        decay, i = exp(G[j, tid]), unit * u32(4 * CHUNK) + tid
        scales[i] = mul(decay, k_inverse[tid])
        scales[i + u32(CHUNK)] = mul(decay, q_inverse[tid])
        scales[i + u32(2 * CHUNK)] = mul(exp(G[j, CHUNK - 1] - G[j, tid]), k_inverse[tid])
        scales[i + u32(3 * CHUNK)] = exp(G[j, CHUNK - 1])


@device
def write_A_and_B(A, first, transforms, unit, kk, qk, G, beta, j, q_inverse, k_inverse, warp, g, quad):
    """A by columns from `first` on in shared memory, B in two parts to its planes; rows 16 warp + g and + 8."""
    for half in consteval(range(2)):
        row = warp * u32(16) + g + u32(8 * half)
        G_row, q_row, k_row = G[j, row], q_inverse[row], mul(beta[j, row], k_inverse[row])
        for block in consteval(range(8)):
            if u32(block) <= warp * u32(2) + u32(1):                                   # none but these touch the lower part
                column = u32(8 * block) + quad * u32(2)
                B0 = B1 = f32(0)
                for e in consteval(range(2)):
                    c = column + u32(e)
                    decay = mul(exp(G_row - G[j, c]), k_inverse[c])
                    A_value = mul(mul(kk[block, 2 * half + e], k_row), decay)
                    B_value = mul(mul(qk[block, 2 * half + e], q_row), decay)
                    A[first + c * u32(COLUMN) + row] = select(c < row, A_value, f32(0))
                    if e == 0:
                        B0 = select(c <= row, B_value, f32(0))
                    else:
                        B1 = select(c <= row, B_value, f32(0))
                high = f32_to_bf16x2(B0, B1)
                i = (unit * u32(4 * PLANE) + row * u32(CHUNK) + column) >> u32(1)
                store_u32(transforms, i + u32(PLANE), high)
                store_u32(transforms, i + u32(3 * PLANE // 2), low_part(high, B0, B1))


@device
def eliminate(x, i, memory, place, known):
    """x[4 i + e] -= a_e known, for four elements a of A in shared memory."""
    a = load_shared_f32x4(memory, place)
    for e in consteval(range(4)):
        x[4 * i + e] = fma(-a[e], known, x[4 * i + e])


@device
def solve(memory, A, X, column):
    """One column of X = (I + A)^-1 by forward substitution, in blocks of 16 rows. A by columns, X by rows in shared memory."""
    x, y = cuda.local.array(16, f32), cuda.local.array(16, f32)
    for i in range(CHUNK):
        memory[X + u32(i * CHUNK) + column] = select(u32(i) == column, f32(1), f32(0))
    for block in range(column >> u32(5) << u32(1), 4):                                 # above, columns 32 .. 63 are zero
        top = u32(block) * u32(16)
        for i in consteval(range(16)):
            x[i] = memory[X + (top + u32(i)) * u32(CHUNK) + column]
        for j in consteval(range(15)):
            for i in consteval(range((j + 1) // 4, 4)):
                place = A + (top + u32(j)) * u32(COLUMN) + top + u32(4 * i)
                if 4 * i > j:
                    eliminate(x, i, memory, place, x[j])
                else:
                    a = load_shared_f32x4(memory, place)
                    for e in consteval(range(j % 4 + 1, 4)):
                        x[4 * i + e] = fma(-a[e], x[j], x[4 * i + e])
        for i in consteval(range(16)):
            memory[X + (top + u32(i)) * u32(CHUNK) + column] = x[i]
        for lower in range(block + 1, 4):
            row = u32(lower) * u32(16)
            for i in consteval(range(16)):
                y[i] = memory[X + (row + u32(i)) * u32(CHUNK) + column]
            for j in consteval(range(16)):
                for i in consteval(range(4)):
                    eliminate(y, i, memory, A + (top + u32(j)) * u32(COLUMN) + row + u32(4 * i), x[j])
            for i in consteval(range(16)):
                memory[X + (row + u32(i)) * u32(CHUNK) + column] = y[i]


@device
def write_T(transforms, unit, memory, X, beta, j, tid):
    """X diag(beta) in two parts to its planes, as far as rows reach: eight columns at a time."""
    high, low = cuda.local.array(4, u32), cuda.local.array(4, u32)
    for step in range(PLANE // 8 // (32 * WARPS)):
        piece = u32(step * 32 * WARPS) + tid
        row, column = piece >> u32(3), (piece & u32(7)) << u32(3)
        if column <= row:
            for i in consteval(range(4)):
                c = column + u32(2 * i)
                T0 = mul(memory[X + row * u32(CHUNK) + c], beta[j, c])
                T1 = mul(memory[X + row * u32(CHUNK) + c + u32(1)], beta[j, c + u32(1)])
                high[i] = f32_to_bf16x2(T0, T1)
                low[i] = low_part(high[i], T0, T1)
            target = unit * u32(4 * PLANE // 8) + piece
            store_u32x4(transforms, target, high[0], high[1], high[2], high[3])
            store_u32x4(transforms, target + u32(PLANE // 8), low[0], low[1], low[2], low[3])
