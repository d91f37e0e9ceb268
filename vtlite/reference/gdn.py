"""Gated delta net: the layer that Qwen3-Next and Qwen3.5 have in place of most attention.

conv      y_t = silu(sum_j w_j x_{t-W+1+j})          each channel by itself             (Gu and Dao 2023, arXiv:2312.00752)
gates     g = -exp(A_log) softplus(a + dt_bias),     beta = sigmoid(b)                  (Dao and Gu 2024, arXiv:2405.21060)
q, k      x / sqrt(sum(x^2) + 1e-6) for each head, and q / sqrt(K)
state     S <- exp(g) S,   S <- S + k (beta (v - S^T k))^T,   o = S^T q                 (Yang et al. 2024, arXiv:2412.06464)

S [K, V] is a memory that maps keys to values: it fades by exp(g), then the value it holds under k moves towards v by
the share beta. Value head h reads the q and k of head h // (num_v_heads / num_k_heads).

`batch` is flat, as in attention.py: the rows of sequence s are query_start_loc[s] .. query_start_loc[s+1], and its states
lie in slot state_slots[s] and are updated in place. A sequence begins with zeros in its slot.

The state is stored after every 64th token of a sequence and after the last of its rows in a batch, and goes on from what was
stored. f32 holds what is computed. bf16 rounds it to nearest even, at these points and nowhere else: so a sequence whose batches
end on multiples of 64 tokens, at its prompt's end and after each generated token has the same bits however it is cut.
"""

from collections.abc import Iterator

import numpy as np

from vtlite.reference.precision import widen

L2_EPS = 1e-6
CHUNK = 64


def gated_delta_net(qkv: np.ndarray, a: np.ndarray, b: np.ndarray, weight: np.ndarray, A_log: np.ndarray, dt_bias: np.ndarray,
                    conv_state: np.ndarray, state: np.ndarray, batch) -> np.ndarray:
    """All of the layer between its projections and its norm: convolution, gates, delta rule. qkv [T, C] -> o [T, Hv, V].

    A row of qkv holds Hk q of K elements, Hk k of K, Hv v of V. Everything else as in the functions below, which it composes.
    """
    q, k, v = split_qkv(causal_conv1d(qkv, weight, conv_state, batch), state)
    return gated_delta_rule(q, k, v, *gdn_gates(a, b, A_log, dt_bias), state, batch)


def split_qkv(qkv: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """qkv [T, C] -> views q, k [T, Hk, K], v [T, Hv, V]; sizes follow from the state [slots, Hv, K, V]."""
    (T, C), (_, Hv, K, V) = qkv.shape, state.shape
    k_first, v_first = (C - Hv * V) // 2, C - Hv * V
    return qkv[:, :k_first].reshape(T, -1, K), qkv[:, k_first:v_first].reshape(T, -1, K), qkv[:, v_first:].reshape(T, Hv, V)


def causal_conv1d(x: np.ndarray, weight: np.ndarray, conv_state: np.ndarray, batch) -> np.ndarray:
    """x [T, C], weight [W, C] (the last row meets the current token), conv_state [slots, W-1, C] -> [T, C] in x's type.

    conv_state holds the last W-1 inputs of each sequence, oldest first, before convolution and SiLU.
    """
    y, width = np.empty_like(x), len(weight)
    for s, slot in enumerate(batch.state_slots):
        rows = slice(batch.query_start_loc[s], batch.query_start_loc[s + 1])
        past_and_x = np.concatenate([conv_state[slot], x[rows].astype(conv_state.dtype)])
        wide, t = widen(past_and_x), len(past_and_x) - width + 1
        total = sum(wide[j : j + t] * weight[j].astype(wide.dtype) for j in range(width))
        y[rows] = (total * _sigmoid(total)).astype(x.dtype)
        conv_state[slot] = past_and_x[t:]
    return y


def gdn_gates(a: np.ndarray, b: np.ndarray, A_log: np.ndarray, dt_bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a, b [T, Hv], A_log, dt_bias [Hv] -> g, the logarithm of the decay, and beta, [T, Hv] f32 (float64 for float64)."""
    a, b = widen(a), widen(b)
    g = -np.exp(A_log.astype(a.dtype)) * np.logaddexp(0, a + dt_bias.astype(a.dtype))
    return g, _sigmoid(b)


def gated_delta_rule(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray,
                     state: np.ndarray, batch) -> np.ndarray:
    """q, k [T, Hk, K], v [T, Hv, V], g, beta [T, Hv], state [slots, Hv, K, V] f32 or bf16 -> o [T, Hv, V] in v's type.

    The recurrence, token by token. q and k come as they are and are divided by their lengths here.
    """
    o = np.empty_like(v)
    q, k = _prepared(q, k, v.shape[1])
    for slot, rows in _chunks(batch):
        S = widen(state[slot])                                                        # [Hv, K, V]
        for t in range(rows.start, rows.stop):
            S = np.exp(g[t])[:, None, None] * S
            delta = beta[t][:, None] * (widen(v[t]) - _read(S, k[t]))                 # [Hv, V]
            S = S + k[t][:, :, None] * delta[:, None, :]
            o[t] = _read(S, q[t]).astype(o.dtype)
        state[slot] = S
    return o


def chunk_gated_delta_rule(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray,
                           state: np.ndarray, batch) -> np.ndarray:
    """`gated_delta_rule` by matrix products over chunks of 64 tokens: the same function of its arguments.

    Chunks begin at the positions 0, 64, 128, ... of a sequence, wherever a batch cuts it. Inside one, every delta depends
    on those before it: a unit lower triangular system instead of a loop (the WY form, arXiv:2406.06484, with decay).
    """
    o = np.empty_like(v)
    q, k = _prepared(q, k, v.shape[1])
    for slot, rows in _chunks(batch):
        for h in range(v.shape[1]):
            o[rows, h], state[slot, h] = _chunk(q[rows, h], k[rows, h], widen(v[rows, h]), g[rows, h], beta[rows, h],
                                                widen(state[slot, h]))
    return o


def _chunks(batch) -> Iterator[tuple[int, slice]]:
    """Of each sequence its slot and its rows, cut at the positions 0, 64, 128, ... of the sequence."""
    for slot, t, end, length in zip(batch.state_slots, batch.query_start_loc, batch.query_start_loc[1:], batch.seq_lens):
        while t < end:
            n = min(CHUNK - (length - (end - t)) % CHUNK, end - t)
            yield slot, slice(t, t + n)
            t += n


def _chunk(q, k, v, g, beta, S) -> tuple[np.ndarray, np.ndarray]:
    """q, k [n, K], v [n, V], g, beta [n], S [K, V] of one head -> o [n, V] and the state after the chunk."""
    G = np.cumsum(g)                                                                  # decay since the chunk began
    causal = np.tri(len(g), dtype=bool)
    D = np.exp(np.where(causal, G[:, None] - G, -np.inf))                             # decay from token j to token i >= j
    A = np.tril(beta[:, None] * (k @ k.T) * D, -1)
    right_side = beta[:, None] * (v - np.exp(G)[:, None] * (k @ S))
    delta = np.linalg.solve(np.eye(len(g), dtype=A.dtype) + A, right_side)            # unit lower triangular
    o = np.exp(G)[:, None] * (q @ S) + (q @ k.T * D) @ delta
    return o, np.exp(G[-1]) * S + (np.exp(G[-1] - G)[:, None] * k).T @ delta


def _prepared(q: np.ndarray, k: np.ndarray, num_v_heads: int) -> tuple[np.ndarray, np.ndarray]:
    """q and k [T, Hk, K] of length 1 / sqrt(K) and 1, one of each for every value head: [T, Hv, K]."""
    q, k = (np.repeat(l2_norm(x), num_v_heads // x.shape[1], axis=1) for x in (widen(q), widen(k)))
    return q * q.dtype.type(q.shape[-1] ** -0.5), k


def l2_norm(x: np.ndarray) -> np.ndarray:
    """x / sqrt(sum(x^2) + 1e-6) over the last axis."""
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + x.dtype.type(L2_EPS))


def _read(S: np.ndarray, x: np.ndarray) -> np.ndarray:
    """S^T x for each head: S [H, K, V], x [H, K] -> [H, V]."""
    return (x[:, None, :] @ S)[:, 0]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):          # exp(-x) = inf for x << 0 gives 0, as it should
        return 1 / (1 + np.exp(-x))
