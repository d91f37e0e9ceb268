"""Gated delta net: convolution, gates, and the recurrence, token by token for prompts and generated tokens alike.

Equations and layouts as in reference/gdn.py; activations f32, states f32 or bf16. Order, for one sequence:
conv      taps join by fma from the oldest input on.
q, k      squares join by fma in ascending element; x / sqrt(sum + 1e-6), then q times 1 / sqrt(K).
state     s = exp(g) S[i, v];  m[v] joins s k[i] by fma in ascending i;  delta = beta (v - m);
          S[i, v] = fma(k[i], delta[v], s);  o[v] joins S[i, v] q[i] by fma in ascending i.
Nothing depends on where a batch cuts a sequence (with a bf16 state: at multiples of 64). Elements of a row (channels, v) never
meet, so LLVM may run eight at once. A bf16 state is widened for the tokens up to where the definition stores it, and narrowed.
Bytes: 8 K V per value head and step (bf16: 4 K V) if a step is one token; a head's state (16 or 64 KiB) stays in the cache for
the others.
"""

from collections.abc import Iterator

import numpy as np

from vtlite.cpu.elementary import exp, sigmoid, silu, softplus
from vtlite.cpu.kernel import SERIAL_BELOW, Kernel, float_in, inlined, pointer_to, run
from vtlite.cpu.simd import fma, load_one, store_bf16
from vtlite.cpu.strided import bits
from vtlite.reference.gdn import CHUNK, L2_EPS, split_qkv

CHANNELS = 512                           # per task of the convolution: its rows stay in the L1 cache
SERIAL_UPDATES = 1 << 17                 # state elements times tokens: fewer are over before a second thread has woken

_f32 = np.float32
_EPS = _f32(L2_EPS)


def gated_delta_net(qkv: np.ndarray, a: np.ndarray, b: np.ndarray, weight: np.ndarray, A_log: np.ndarray, dt_bias: np.ndarray,
                    conv_state: np.ndarray, state: np.ndarray, batch) -> np.ndarray:
    """qkv [T, C] f32 -> o [T, Hv, V] f32: the functions below, one after another."""
    q, k, v = split_qkv(causal_conv1d(qkv, weight, conv_state, batch), state)
    return gated_delta_rule(q, k, v, *gdn_gates(a, b, A_log, dt_bias), state, batch)


def causal_conv1d(x: np.ndarray, weight: np.ndarray, conv_state: np.ndarray, batch) -> np.ndarray:
    """x [T, C] f32, weight [W, C] f32, conv_state [slots, W-1, C] f32, updated in place -> [T, C] f32."""
    (T, C), W = x.shape, len(weight)
    y = np.empty((T, C), np.float32)
    blocks = -(-C // CHANNELS)
    run(_conv, len(batch.state_slots) * blocks, bits(x), bits(weight), conv_state, y, batch.query_start_loc,
        batch.state_slots, C, W, blocks, parallel=y.size >= SERIAL_BELOW)
    return y


def gdn_gates(a: np.ndarray, b: np.ndarray, A_log: np.ndarray, dt_bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a, b [T, Hv] f32, A_log, dt_bias [Hv] f32 -> g, the logarithm of the decay, and beta, both [T, Hv] f32."""
    g, beta = np.empty(a.shape, np.float32), np.empty(a.shape, np.float32)
    run(_gates, len(a), bits(a), bits(b), bits(A_log), bits(dt_bias), g, beta, a.shape[1], parallel=a.size >= SERIAL_BELOW)
    return g, beta


def gated_delta_rule(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray,
                     state: np.ndarray, batch) -> np.ndarray:
    """q, k [T, Hk, K], v [T, Hv, V], g, beta [T, Hv] f32, state [slots, Hv, K, V] f32 or bf16, in place -> o [T, Hv, V] f32."""
    (T, Hk, K), (Hv, V), slots = q.shape, v.shape[1:], batch.state_slots
    tasks, o = len(slots) * Hv, np.empty((T, Hv, V), np.float32)
    scratch, parallel = np.empty((tasks, 2 * K + V), np.float32), T * Hv * K * V >= SERIAL_UPDATES

    def update(state: np.ndarray, slots: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        run(_recurrence, tasks, bits(q), bits(k), bits(v), bits(g), bits(beta), state, o, scratch, starts, ends, slots, Hk, Hv, K, V,
            float(K**-0.5), parallel=parallel)

    if state.dtype == np.float32:
        update(state, slots, batch.query_start_loc[:-1], batch.query_start_loc[1:])
        return o
    wide = np.empty((len(slots), Hv, K, V), np.float32)
    for starts, ends in _between_stores(batch):
        run(_move, tasks, bits(state), wide, slots, Hv, K * V, 0, parallel=parallel)
        update(wide, np.arange(len(slots)), starts, ends)
        run(_move, tasks, bits(state), wide, slots, Hv, K * V, 1, parallel=parallel)
    return o


def _between_stores(batch) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """First and last row of every sequence up to the next position that 64 divides, until all rows are through."""
    starts, ends = batch.query_start_loc[:-1], batch.query_start_loc[1:]
    while (starts < ends).any():
        positions = batch.seq_lens - (ends - starts)
        stops = np.minimum(ends, starts + CHUNK - positions % CHUNK)
        yield starts, stops
        starts = stops


@Kernel
def _conv(task, args):
    """CHANNELS channels of one sequence."""
    x, w, y = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), pointer_to(args[3], np.float32)
    query_start_loc, state_slots = pointer_to(args[4], np.int64), pointer_to(args[5], np.int64)
    C, W, blocks = args[6], args[7], args[8]
    s, block = task // blocks, task % blocks
    c0 = block * CHANNELS
    c1 = c0 + CHANNELS if c0 + CHANNELS < C else C
    past = pointer_to(args[2] + 4 * state_slots[s] * (W - 1) * C, np.float32)         # [W - 1, C]
    first, last = query_start_loc[s], query_start_loc[s + 1]
    for t in range(first, last):
        for c in range(c0, c1):
            y[t * C + c] = _f32(0)
        for j in range(W):
            row = t - (W - 1) + j
            if row < first:
                for c in range(c0, c1):
                    y[t * C + c] = fma(w[j * C + c], past[(row - first + W - 1) * C + c], y[t * C + c])
            else:
                for c in range(c0, c1):
                    y[t * C + c] = fma(w[j * C + c], x[row * C + c], y[t * C + c])
        for c in range(c0, c1):
            y[t * C + c] = silu(y[t * C + c])
    for j in range(W - 1):                                                            # ascending: reads ahead of its writes
        row = last - (W - 1) + j
        for c in range(c0, c1):
            past[j * C + c] = past[(row - first + W - 1) * C + c] if row < first else x[row * C + c]


@Kernel
def _gates(task, args):
    """The value heads of one token."""
    a, b = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32)
    A_log, dt_bias = pointer_to(args[2], np.float32), pointer_to(args[3], np.float32)
    g, beta, Hv = pointer_to(args[4], np.float32), pointer_to(args[5], np.float32), args[6]
    for h in range(Hv):
        i = task * Hv + h
        g[i] = -exp(A_log[h]) * softplus(a[i] + dt_bias[h])
        beta[i] = sigmoid(b[i])


@Kernel
def _recurrence(task, args):
    """One value head of one sequence."""
    q, k, v = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), pointer_to(args[2], np.float32)
    g, beta, o = pointer_to(args[3], np.float32), pointer_to(args[4], np.float32), pointer_to(args[6], np.float32)
    starts, ends, state_slots = pointer_to(args[8], np.int64), pointer_to(args[9], np.int64), pointer_to(args[10], np.int64)
    Hk, Hv, K, V, scale = args[11], args[12], args[13], args[14], float_in(args[15])
    s, head = task // Hv, task % Hv
    S = pointer_to(args[5] + 4 * (state_slots[s] * Hv + head) * K * V, np.float32)    # [K, V]
    qn = pointer_to(args[7] + 4 * task * (2 * K + V), np.float32)                     # [K]
    kn = pointer_to(args[7] + 4 * (task * (2 * K + V) + K), np.float32)               # [K]
    delta = pointer_to(args[7] + 4 * (task * (2 * K + V) + 2 * K), np.float32)        # [V]
    k_head = head // (Hv // Hk)
    for t in range(starts[s], ends[s]):
        _normalised(q, (t * Hk + k_head) * K, K, scale, qn)
        _normalised(k, (t * Hk + k_head) * K, K, _f32(1), kn)
        decay, share, out = exp(g[t * Hv + head]), beta[t * Hv + head], (t * Hv + head) * V
        for j in range(V):
            delta[j] = o[out + j] = _f32(0)
        for i in range(K):
            for j in range(V):
                S[i * V + j] *= decay
                delta[j] = fma(S[i * V + j], kn[i], delta[j])
        for j in range(V):
            delta[j] = share * (v[out + j] - delta[j])
        for i in range(K):
            for j in range(V):
                S[i * V + j] = fma(kn[i], delta[j], S[i * V + j])
                o[out + j] = fma(S[i * V + j], qn[i], o[out + j])


@Kernel
def _move(task, args):
    """The bf16 state of one head of one sequence to f32, or back, rounded to nearest even."""
    state_slots, Hv, size, back = pointer_to(args[2], np.int64), args[3], args[4], args[5]
    stored = pointer_to(args[0] + 2 * (state_slots[task // Hv] * Hv + task % Hv) * size, np.uint16)
    wide = pointer_to(args[1] + 4 * task * size, np.float32)
    for i in range(size):
        if back:
            store_bf16(stored, i, wide[i])
        else:
            wide[i] = load_one(stored, i)


@inlined
def _normalised(x, start, K, scale, target):
    """target = x[start : start + K] / its length * scale."""
    squares = _f32(0)
    for i in range(start, start + K):
        squares = fma(x[i], x[i], squares)
    length = np.sqrt(squares + _EPS)
    for i in range(K):
        target[i] = x[start + i] / length * scale
