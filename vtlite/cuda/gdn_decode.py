"""Gated delta rule, one token of each sequence    S <- e^g S,   S <- S + k (beta (v - S^T k))^T,   o = S^T q

qkv [T, C] bf16, what the convolution gave: Hk q of K, Hk k of K, Hv v of V; a, b [T, Hv] bf16; A_log, dt_bias [Hv] f32;
state [slots, Hv, K, V] f32 or bf16, in place, passed as u32; o [T, Hv, V] bf16. q and k are divided by their lengths here, q by
sqrt(K) too. f32 throughout; a bf16 state is rounded once, when it is stored. S^T k and S^T q are read in one pass over the decayed
state, before the update: o = S^T q + (q . k) delta.
Order: lane l of a warp squares elements l K/32 .. of q and k in ascending order by fma, then reduction.py's tree; likewise
q . k. Over the rows of S: chains of 16 neighbouring rows by fma, joined in ascending order. A row of o and its state depend on
that sequence alone; how V is cut into blocks changes no bit.
Bytes: 8 K V per value head (bf16: 4 K V), read and written; bound by memory. A block keeps its part of S in registers, all its
loads in flight while q, k and the gates are worked out.
"""

from vtlite.cuda.gdn_gates import log_decay, share
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (bf16, bf16x2_high, bf16x2_low, consteval, cuda, div, f32, f32_to_bf16x2, fma, i32, i64,
                              load_f32x4, load_u32, load_u32x2, mul, ptr, sqrt, store_f32x4, store_u32x2, u32)
from vtlite.cuda.reduction import group_sum
from vtlite.elementary import exp
from vtlite.reference.gdn import L2_EPS

ROWS = 16                        # of S per thread, times 4 columns: 64 registers

K, V = 128, 128                  # K 64 or 128, V a multiple of 4
V_TILE = 32                      # columns of S per block, 32 or 64
BF16_STATE = False

PREBUILT = [{"K": dim, "V": dim, "V_TILE": tile, "BF16_STATE": narrow}
            for narrow in (False, True) for dim in (64, 128) for tile in (32, 64)]


@device
def load_state(S, i, state, vector):
    """Row i of this thread's part of the state: four columns."""
    if BF16_STATE:
        s01, s23 = load_u32x2(state, vector)
        S[i, 0], S[i, 1], S[i, 2], S[i, 3] = bf16x2_low(s01), bf16x2_high(s01), bf16x2_low(s23), bf16x2_high(s23)
    else:
        S[i, 0], S[i, 1], S[i, 2], S[i, 3] = load_f32x4(state, vector)


@device
def store_state(state, vector, s0, s1, s2, s3):
    if BF16_STATE:
        store_u32x2(state, vector, f32_to_bf16x2(s0, s1), f32_to_bf16x2(s2, s3))
    else:
        store_f32x4(state, vector, s0, s1, s2, s3)


@device
def load_lane_pair(words, qkv, i):
    """K / 32 elements of a vector, as pairs; i counts the lanes' pieces."""
    if K == 128:
        words[0], words[1] = load_u32x2(qkv, i)
    else:
        words[0] = load_u32(qkv, i)


@device
def lane_dot(x, y):
    """This lane's part of a dot product."""
    total = f32(0)
    for i in consteval(range(K // 64)):
        total = fma(bf16x2_low(x[i]), bf16x2_low(y[i]), total)
        total = fma(bf16x2_high(x[i]), bf16x2_high(y[i]), total)
    return total


@device
def length(squares):
    return sqrt(squares + f32(L2_EPS))


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), ptr(f32), ptr(f32), ptr(u32), ptr(i32), ptr(i64), ptr(bf16), u32, u32, u32),
        threads=lambda K, V_TILE, **_: V_TILE // 4 * (K // ROWS), constants=("K", "V", "V_TILE", "BF16_STATE"),
        min_blocks=lambda V_TILE, **_: 192 // V_TILE, prebuild=PREBUILT)
def decode_kernel(qkv, a, b, A_log, dt_bias, state, token_rows, state_slots, o, k_heads, per_k_head, gate_stride):
    """Block (part of V, value head, sequence s, whose token is row token_rows[s]). per_k_head: value heads that share a key head.
    gate_stride: elements from one token of a, and of b, to the next."""
    tid, lane = u32(cuda.threadIdx.x), u32(cuda.threadIdx.x) & u32(31)
    tile, head, s = u32(cuda.blockIdx.x), u32(cuda.blockIdx.y), u32(cuda.blockIdx.z)
    column, group = tid % u32(V_TILE // 4), tid // u32(V_TILE // 4)
    vector = tile * u32(V_TILE // 4) + column                                          # of v, o and a row of S
    token = u32(token_rows[s])
    v_heads = k_heads * per_k_head
    row = token * (u32(2 * K) * k_heads + u32(V) * v_heads)
    qs, ks, q_dot_k = cuda.shared.array(K, f32), cuda.shared.array(K, f32), cuda.shared.array(1, f32)
    parts = cuda.shared.array(consteval((2, K // ROWS, 4, V_TILE // 4)), f32)
    S, m, p = cuda.local.array((ROWS, 4), f32), cuda.local.array(4, f32), cuda.local.array(4, f32)
    q, k = cuda.local.array(2, u32), cuda.local.array(2, u32)
    first = ((u32(state_slots[s]) * v_heads + head) * u32(K) + group * u32(ROWS)) * u32(V // 4) + vector
    for i in consteval(range(ROWS)):
        load_state(S, i, state, first + u32(i * (V // 4)))
    v01, v23 = load_u32x2(qkv, (row + u32(2 * K) * k_heads + head * u32(V) >> u32(2)) + vector)
    if tid < u32(32):
        piece = (row + head // per_k_head * u32(K)) // u32(K // 32) + lane
        load_lane_pair(q, qkv, piece)
        load_lane_pair(k, qkv, piece + u32(32) * k_heads)
        q_length, k_length = length(group_sum(lane_dot(q, q), parts)), length(group_sum(lane_dot(k, k), parts))
        dot = f32(0)
        for i in consteval(range(K // 64)):
            for half in consteval(range(2)):
                qi = bf16x2_high(q[i]) if half else bf16x2_low(q[i])
                ki = bf16x2_high(k[i]) if half else bf16x2_low(k[i])
                qi, ki = mul(div(qi, q_length), f32(consteval(K**-0.5))), div(ki, k_length)
                qs[lane * u32(K // 32) + u32(2 * i + half)], ks[lane * u32(K // 32) + u32(2 * i + half)] = qi, ki
                dot = fma(qi, ki, dot)
        dot = group_sum(dot, parts)
        if lane == u32(0):
            q_dot_k[0] = dot
    gate = token * gate_stride + head
    decay, beta = exp(log_decay(a[gate], A_log[head], dt_bias[head])), share(b[gate])
    for e in consteval(range(4)):
        m[e], p[e] = f32(0), f32(0)
    cuda.syncthreads()
    for i in consteval(range(ROWS)):
        qi, ki = qs[group * u32(ROWS) + u32(i)], ks[group * u32(ROWS) + u32(i)]
        for e in consteval(range(4)):
            S[i, e] = mul(decay, S[i, e])
            m[e], p[e] = fma(ki, S[i, e], m[e]), fma(qi, S[i, e], p[e])
    for e in consteval(range(4)):
        parts[0, group, e, column], parts[1, group, e, column] = m[e], p[e]
    cuda.syncthreads()
    for e in consteval(range(4)):
        m[e], p[e] = parts[0, 0, e, column], parts[1, 0, e, column]
        for g in consteval(range(1, K // ROWS)):
            m[e], p[e] = m[e] + parts[0, g, e, column], p[e] + parts[1, g, e, column]
    m[0], m[1] = mul(beta, bf16x2_low(v01) - m[0]), mul(beta, bf16x2_high(v01) - m[1])           # delta from here on
    m[2], m[3] = mul(beta, bf16x2_low(v23) - m[2]), mul(beta, bf16x2_high(v23) - m[3])
    for i in consteval(range(ROWS)):
        ki = ks[group * u32(ROWS) + u32(i)]
        store_state(state, first + u32(i * (V // 4)), fma(ki, m[0], S[i, 0]), fma(ki, m[1], S[i, 1]),
                    fma(ki, m[2], S[i, 2]), fma(ki, m[3], S[i, 3]))
    if group == u32(0):
        dot = q_dot_k[0]
        store_u32x2(o, (token * v_heads + head) * u32(V // 4) + vector,
                    f32_to_bf16x2(fma(dot, m[0], p[0]), fma(dot, m[1], p[1])),
                    f32_to_bf16x2(fma(dot, m[2], p[2]), fma(dot, m[3], p[3])))
