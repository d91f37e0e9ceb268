"""The arithmetic of gated delta nets in NumPy, bit for bit: the kernels' operations in their order, on Hopper, without a thread.

Products of the tensor core are vtlite.cuda.tensor_core's chains, everything else vtlite.ieee's and vtlite.elementary's functions.
Arguments are NumPy arrays, named and shaped as those of vtlite/cuda/gdn.py; states change in place.
"""

import numpy as np

from vtlite.cuda.gdn_decode import ROWS
from vtlite.cuda.gdn_plan import CHUNK, StepPlan, plan_step
from vtlite.cuda.lang.types import bf16, f32
from vtlite.cuda.tensor_core import chain
from vtlite.elementary import exp, rsqrt, sigmoid, silu, softplus
from vtlite.ieee import div, fma, mul, sqrt
from vtlite.reference.gdn import L2_EPS

EPS = f32(L2_EPS)


def gated_delta_net(qkv, a, b, weight, A_log, dt_bias, conv_state, state, batch) -> np.ndarray:
    """qkv [T, C] bf16 before the convolution -> o [T, Hv, V] bf16, as vtlite.cuda.gdn.gated_delta_net on host arrays."""
    plan = plan_step(batch.query_start_loc, batch.seq_lens, batch.state_slots, batch.is_generated)
    return by_plan(qkv, a, b, weight, A_log, dt_bias, conv_state, state, plan)


def by_plan(qkv, a, b, weight, A_log, dt_bias, conv_state, state, plan: StepPlan) -> np.ndarray:
    """gated_delta_net for the rows that a plan has."""
    convolved, o = np.empty_like(qkv), np.empty((len(qkv), state.shape[1], state.shape[3]), bf16)
    gate_inputs = a, b, A_log, dt_bias
    if plan.token_rows is not None:
        for row, slot in zip(plan.token_rows, plan.state_slots):
            convolve(qkv, weight, conv_state, slice(row, row + 1), slot, convolved)
        decode(convolved, *gate_inputs, state, plan.token_rows, plan.state_slots, o)
    if plan.chunks is not None:
        for first, count, slot, _ in plan.chunks.sequences:
            convolve(qkv, weight, conv_state, slice(first, first + count), slot, convolved)
        prefill(convolved, *gate_inputs, state, plan.chunks, o)
    return o


def convolve(x, weight, conv_state, rows, slot, out) -> None:
    """The rows (a slice) of one sequence."""
    padded = np.concatenate([conv_state[slot], x[rows]])
    y = np.zeros(x[rows].shape, f32)
    for j in range(len(weight)):
        y = fma(weight[j], padded[j : j + len(y)].astype(f32), y)
    out[rows], conv_state[slot] = silu(y).astype(bf16), padded[len(y) :]


def gates(a, b, A_log, dt_bias) -> tuple[np.ndarray, np.ndarray]:
    """g and beta [T, Hv] f32."""
    return mul(-exp(A_log), softplus(a.astype(f32) + dt_bias)), sigmoid(b.astype(f32))


def split_heads(qkv, state) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """qkv [T, C] -> q, k [T, Hk, K], v [T, Hv, V]."""
    _, Hv, K, V = state.shape
    q, k, v = np.split(qkv, [(qkv.shape[1] - Hv * V) // 2, qkv.shape[1] - Hv * V], axis=1)
    return q.reshape(len(q), -1, K), k.reshape(len(k), -1, K), v.reshape(len(v), Hv, V)


def decode(qkv, a, b, A_log, dt_bias, state, token_rows, state_slots, out) -> None:
    q, k, v = (x[token_rows].astype(f32) for x in split_heads(qkv, state))
    decay, beta = (x[..., None] for x in gates(a[token_rows], b[token_rows], A_log, dt_bias))              # [S, Hv, 1]
    decay, (Hv, K, _) = exp(decay), state.shape[1:]
    q = mul(div(q, sqrt(lane_dot(q, q) + EPS)), f32(K**-0.5))
    k = div(k, sqrt(lane_dot(k, k) + EPS))
    q_dot_k, q, k = (np.repeat(x, Hv // q.shape[1], axis=1) for x in (lane_dot(q, k), q, k))
    S = mul(decay[..., None], state[state_slots].astype(f32))
    delta = mul(beta, v - read(S, k))
    out[token_rows] = fma(q_dot_k, delta, read(S, q)).astype(bf16)
    state[state_slots] = fma(k[..., None], delta[..., None, :], S)


def lane_dot(x, y) -> np.ndarray:
    """x . y over the last axis, kept: 32 lanes of neighbours, then reduction.py's tree."""
    x, y = (z.reshape(*z.shape[:-1], 32, -1) for z in (x, y))
    total = np.zeros(x.shape[:-1], f32)
    for i in range(x.shape[-1]):
        total = fma(x[..., i], y[..., i], total)
    for distance in (16, 8, 4, 2, 1):
        total = total + total[..., np.arange(32) ^ distance]
    return total[..., :1]


def read(S, x) -> np.ndarray:
    """S^T x: chains over ROWS neighbouring rows, joined in ascending order. S [..., K, V], x [..., K] -> [..., V]."""
    groups = []
    for first in range(0, x.shape[-1], ROWS):
        total = np.zeros((*x.shape[:-1], S.shape[-1]), f32)
        for i in range(first, first + ROWS):
            total = fma(x[..., i, None], S[..., i, :], total)
        groups.append(total)
    return sum(groups[1:], groups[0])


def prefill(qkv, a, b, A_log, dt_bias, state, plan, out) -> None:
    q, k, v = split_heads(qkv, state)
    g, beta = gates(a, b, A_log, dt_bias)
    per_k_head = v.shape[1] // k.shape[1]
    for first_row, num_rows, slot, first_chunk in plan.sequences:
        for h in range(v.shape[1]):
            S = state[slot, h].T                                                             # [V, K], in the state's type
            for i, start in enumerate(range(first_row, first_row + num_rows, CHUNK)):
                rows = slice(start, min(start + CHUNK, first_row + num_rows))
                of_head = q[rows, h // per_k_head], k[rows, h // per_k_head], v[rows, h], g[rows, h], beta[rows, h]
                o, S = scan_chunk(*prepare_chunk(*map(whole_chunk, of_head)), S)
                out[rows, h] = o[: rows.stop - rows.start]
                if (saved_slot := plan.chunks[first_chunk + i, 1]) >= 0:
                    state[saved_slot, h] = S.T
            state[slot, h] = S.T


def whole_chunk(x) -> np.ndarray:
    """x with rows of zeros up to 64."""
    return np.concatenate([x, np.zeros((CHUNK - len(x), *x.shape[1:]), x.dtype)])


def prepare_chunk(q, k, v, g, beta) -> tuple:
    """gdn_chunk.py: q, k, v and T, B in two parts each, and the scales."""
    zero = np.zeros((CHUNK, CHUNK), f32)
    kk, qk = chain(bits(k), bits(k), zero), chain(bits(q), bits(k), zero)
    q_inverse, k_inverse = mul(inverse_length(q), f32(k.shape[1] ** -0.5)), inverse_length(k)
    halves = running_sum(g[:32]), running_sum(g[32:])
    G = np.concatenate([halves[0], halves[0][-1] + halves[1]])
    decay = mul(exp(G[:, None] - G), k_inverse)
    A = np.tril(mul(mul(kk, mul(beta, k_inverse)[:, None]), decay), -1)
    B = np.tril(mul(mul(qk, q_inverse[:, None]), decay))
    T = np.eye(CHUNK, dtype=f32)
    for j in range(CHUNK):
        T[j + 1 :] = fma(-A[j + 1 :, j, None], T[j], T[j + 1 :])
    scales = mul(exp(G), k_inverse), mul(exp(G), q_inverse), mul(exp(G[-1] - G), k_inverse), exp(G[-1])
    return q, k, v, parts(mul(T, beta)), parts(B), scales


def inverse_length(x) -> np.ndarray:
    squares = np.zeros(len(x), f32)
    for column in x.astype(f32).T:
        squares = fma(column, column, squares)
    return rsqrt(squares + EPS)


def running_sum(x) -> np.ndarray:
    """Of 32 lanes, by doubling distances."""
    for distance in (1, 2, 4, 8, 16):
        x = np.concatenate([x[:distance], x[distance:] + x[:-distance]])
    return x


def scan_chunk(q, k, v, T, B, scales, S) -> tuple[np.ndarray, np.ndarray]:
    """gdn_scan.py: o [64, V] bf16 and S [V, K], f32 or bf16, after the chunk."""
    kS, qS = read_state(S, k), read_state(S, q)                                                            # [V, 64]
    R = fma(-scales[0], kS, v.astype(f32).T)
    D = split_product(R, T, np.zeros_like(R))
    o = split_product(D, B, mul(scales[1], qS))
    S_after = exact_product(mul(scales[2], D), np.ascontiguousarray(k.T), mul(scales[3], S.astype(f32)))
    return o.T.astype(bf16), S_after.astype(S.dtype)


def read_state(S, x) -> np.ndarray:
    """S^T x^T; a bf16 state has no low part."""
    zero = np.zeros((len(S), CHUNK), f32)
    return chain(bits(S), bits(x), zero) if S.dtype == bf16 else exact_product(S, x, zero)


def exact_product(x, y, c) -> np.ndarray:
    """c + x y^T for f32 x in two parts and bf16 y."""
    high, low = parts(x)
    return chain(steps(high, low), steps(bits(y), bits(y)), c)


def split_product(x, y, c) -> np.ndarray:
    """c + x y^T, both in two parts (y as such), without the product of the low ones."""
    (high, low), (y_high, y_low) = parts(x), y
    return chain(steps(high, low, high), steps(y_high, y_high, y_low), c)


def parts(x) -> tuple[np.ndarray, np.ndarray]:
    """hi and lo of f32, as bit patterns."""
    high = x.astype(bf16)
    return bits(high), bits((x - high.astype(f32)).astype(bf16))


def steps(*operands) -> np.ndarray:
    """Operands [M, K] woven together in pieces of 16 columns: the steps of a chain."""
    woven = np.stack([x.reshape(len(x), -1, 16) for x in operands], axis=2)
    return np.ascontiguousarray(woven.reshape(len(woven), -1))


def bits(x) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint16)
