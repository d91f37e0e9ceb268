"""Gated delta net on a GPU: convolution, gates, L2 norms and the delta rule (reference/gdn.py has the equations).

Generated tokens take two launches, gdn_conv.conv_step_kernel and gdn_decode.decode_kernel: the recurrence in f32. Prompt
tokens take three, gdn_conv.conv_chunk_kernel, gdn_chunk.chunk_kernel and gdn_scan.scan_kernel: the chunk form on the grid of
64 positions. Which of the two a token gets follows from what it is, never from the step it is computed in, so its bits do not
depend on the batch, on where a prompt is cut, or on whether its beginning came out of a cache.
"""

from types import SimpleNamespace

import numpy as np

from vtlite import reference
from vtlite.cuda import gdn_chunk, gdn_conv, gdn_decode, gdn_scan
from vtlite.cuda.device import current
from vtlite.cuda.gdn_chunk import MOST_SHARED_KEYS
from vtlite.cuda.gdn_plan import CHUNK, ChunkPlan, plan_chunks
from vtlite.cuda.lang import bf16, f32, u32
from vtlite.cuda.layout import need_contiguous
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

MOST_SHARED_MEMORY = 227 << 10                                # bytes per block, of chips not named here
SHARED_MEMORY = {"sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10, "sm_120": 99 << 10, "sm_121": 99 << 10}


def gated_delta_net(qkv, a, b, weight, A_log, dt_bias, conv_state, state, batch, *, out=None):
    """qkv [T, C] bf16 before the convolution -> o [T, Hv, V] bf16; weight [4, C], A_log, dt_bias [Hv] f32, the rest as below.

    batch.delta_net is the step's gdn_plan.StepPlan on the device. qkv, a and b may leave gaps between rows.
    """
    convolved = current().empty(qkv.shape, bf16)
    o = current().empty((len(qkv), state.shape[1], state.shape[3]), bf16) if out is None else out
    gates = a, b, A_log, dt_bias
    rows, slots, chunks = batch.delta_net
    if slots is not None:
        conv_step(qkv, weight, conv_state, rows, slots, out=convolved)
        decode(convolved, *gates, state, rows, slots, out=o)
    if chunks is not None:
        conv_chunks(qkv, weight, conv_state, chunks, out=convolved)
        prefill(convolved, *gates, state, chunks, out=o)
    return o


def conv_step(x, weight, conv_state, token_rows, state_slots, *, out) -> None:
    """causal_conv1d for one token of each of S sequences: rows token_rows[:S] i32 of x [T, C] bf16 and of `out` [T, C] bf16.

    weight [4, C] f32; conv_state [slots, 3, C] bf16, in place, at state_slots [S] i64. x may leave gaps between rows.
    """
    need_contiguous(weight=weight, conv_state=conv_state, out=out)
    columns, stride = x.shape[1] // 4, _stride("x", x, 8)
    current().launch(gdn_conv.conv_step_kernel.specialize(), (-(-columns // gdn_conv.THREADS), len(state_slots)),
                     x, weight, conv_state, token_rows, state_slots, out, columns, stride)


def conv_chunks(x, weight, conv_state, plan: ChunkPlan, *, out) -> None:
    """causal_conv1d for the rows of a plan: as conv_step."""
    need_contiguous(weight=weight, conv_state=conv_state, out=out)
    columns, stride = x.shape[1] // 4, _stride("x", x, 8)
    grid = -(-columns // gdn_conv.THREADS), len(plan.chunks) * (CHUNK // gdn_conv.ROWS)
    current().launch(gdn_conv.conv_chunk_kernel.specialize(), grid, x, weight, conv_state, plan.sequences, plan.chunks, out,
                     columns, stride)


def decode(qkv, a, b, A_log, dt_bias, state, token_rows, state_slots, *, out, v_tile: int | None = None) -> None:
    """gated_delta_rule for one token of each of S sequences: rows token_rows[:S] i32 of qkv [T, C] and `out` [T, Hv, V] bf16.

    a, b [T, Hv] bf16, with one distance between rows; A_log, dt_bias [Hv] f32; state [slots, Hv, K, V] f32 or bf16, in place, at
    state_slots [S] i64. v_tile, columns of a state per block, is a choice of speed alone.
    """
    need_contiguous(qkv=qkv, state=state, out=out)
    Hk, Hv, K, V = _dims(qkv, state)
    if v_tile is None:
        v_tile = min(V, 64) if len(state_slots) * Hv >= 4 * current().num_sms else 32
    kernel = gdn_decode.decode_kernel.specialize(K=K, V=V, V_TILE=v_tile, BF16_STATE=state.dtype == bf16)
    current().launch(kernel, (V // v_tile, Hv, len(state_slots)), qkv, a, b, A_log, dt_bias, state.view(u32), token_rows, state_slots,
                     out, Hk, Hv // Hk, _gate_stride(a, b))


def prefill(qkv, a, b, A_log, dt_bias, state, plan: ChunkPlan, *, out, warps: int | None = None,
            stages: int | None = None) -> None:
    """gated_delta_rule for the rows of a plan, by chunks: as decode.

    warps and stages (gdn_scan.py) are choices of speed alone. 33 KiB per chunk and value head pass between the two kernels.
    """
    need_contiguous(qkv=qkv, state=state, out=out)
    Hk, Hv, K, V = _dims(qkv, state)
    num_chunks, num_parts = len(plan.chunks), len(plan.sequences)
    transforms = current().empty((num_chunks, Hv, 4, CHUNK, CHUNK), bf16)
    scales = current().empty((num_chunks, Hv, 4, CHUNK), f32)
    current().launch(gdn_chunk.chunk_kernel.specialize(K=K), (Hk, num_chunks), qkv, a, b, A_log, dt_bias, plan.sequences,
                     plan.chunks, transforms, scales, Hk, Hv // Hk, qkv.shape[1] // 8, _gate_stride(a, b))
    if warps is None:
        warps = V // 16 if num_parts * Hv >= current().num_sms else min(4, V // 16)
    if stages is None:
        stages = 2 if 2 * gdn_scan.stage_bytes(K) <= SHARED_MEMORY.get(current().chip, MOST_SHARED_MEMORY) else 1
    kernel = gdn_scan.scan_kernel.specialize(K=K, V=V, WARPS=warps, STAGES=stages, BF16_STATE=state.dtype == bf16)
    current().launch(kernel, (V // (16 * warps), Hv, num_parts), qkv, transforms, scales, state.view(u32), plan.sequences, plan.chunks,
                     out, Hk, Hv // Hk)


def _dims(qkv, state) -> tuple[int, int, int, int]:
    """Hk, Hv, K, V."""
    _, Hv, K, V = state.shape
    Hk = (qkv.shape[1] - Hv * V) // (2 * K)
    fits = qkv.shape[1] == 2 * Hk * K + Hv * V and Hk > 0 and Hv % Hk == 0 and Hv // Hk <= MOST_SHARED_KEYS
    if state.dtype not in (f32, bf16):
        raise DeviceError(f"a recurrent state should be float32 or bfloat16, found {state.dtype}: EngineConfig.mamba_ssm_cache_dtype "
                          f"names one of the two")
    if K not in (64, 128) or V not in (32, 64, 128) or not fits:
        raise DeviceError(f"the kernels of gated delta nets take K of 64 or 128, V of 32, 64 or 128 and up to "
                          f"{MOST_SHARED_KEYS} value heads for each key head; found a state {list(state.shape)} and qkv {list(qkv.shape)}")
    return Hk, Hv, K, V


def _stride(name: str, x, unit: int) -> int:
    """Vectors of `unit` bytes from one row of x [T, C] to the next."""
    if x.strides[1] != x.dtype.itemsize or x.strides[0] % unit or x.address % unit:
        raise DeviceError(f"{name} {list(x.shape)} has strides {list(x.strides)}; its rows must be contiguous and begin at "
                          f"multiples of {unit} bytes: copy it")
    return x.strides[0] // unit


def _gate_stride(a, b) -> int:
    stride = _stride("a", a, 2)
    if _stride("b", b, 2) != stride:
        raise DeviceError(f"a and b should have one distance between rows, found {a.strides[0]} and {b.strides[0]} bytes")
    return stride


# -- the specs

def _delta_rule(qkv, a, b, A_log, dt_bias, state, query_start_loc, state_slots) -> tuple:
    """o and the states by the definition."""
    _, Hv, K, V = state.shape
    q, k, v = np.split(qkv, [(qkv.shape[1] - Hv * V) // 2, qkv.shape[1] - Hv * V], axis=1)
    state, lengths = state.copy(), np.diff(query_start_loc)
    batch = SimpleNamespace(query_start_loc=query_start_loc, seq_lens=lengths, state_slots=state_slots)
    o = reference.gated_delta_rule(q.reshape(len(q), -1, K), k.reshape(len(k), -1, K), v.reshape(len(v), Hv, V),
                                   *reference.gdn_gates(a, b, A_log, dt_bias), state, batch)
    return o, state


def random_inputs(rng, T: int, S: int, Hk: int, Hv: int, K: int, V: int, bf16_state: bool = False) -> dict:
    """Activations of T tokens, gates as an initialised Qwen3.5 has them, and the states of S sequences in S + 1 slots."""
    dt = np.exp(rng.uniform(np.log(0.001), np.log(0.1), Hv))
    return {"qkv": rng.standard_normal((T, 2 * Hk * K + Hv * V), f32).astype(bf16),
            "a": rng.standard_normal((T, Hv), f32).astype(bf16), "b": rng.standard_normal((T, Hv), f32).astype(bf16),
            "A_log": np.log(rng.uniform(1, 16, Hv)).astype(f32), "dt_bias": np.log(np.expm1(dt)).astype(f32),
            "state": rng.standard_normal((S + 1, Hv, K, V), f32).astype(bf16 if bf16_state else f32, copy=False)}


def ragged(T: int, S: int) -> np.ndarray:
    """[S + 1] i32: where S sequences of T tokens in all begin, the later the longer."""
    return (T * (np.arange(S + 1) * (np.arange(S + 1) + S) / (2 * S * S))).astype(np.int32)


def _decode_inputs(rng, S: int, **dims) -> dict:
    return {**random_inputs(rng, S, S, **dims), **_step_of(rng, S)}


def _step_of(rng, S: int) -> dict:
    return {"token_rows": np.arange(S, dtype=np.int32), "state_slots": rng.permutation(S + 1)[:S]}


def _plan_of(rng, T: int, S: int) -> dict:
    starts = ragged(T, S)
    return vars(plan_chunks(starts, np.diff(starts), rng.permutation(S + 1)[:S], range(S)))


def _prefill_inputs(rng, T: int, S: int, **dims) -> dict:
    return {**random_inputs(rng, T, S, **dims), **_plan_of(rng, T, S)}


def _random_convolution(rng, T: int, S: int, C: int) -> dict:
    return {"x": rng.standard_normal((T, C)).astype(bf16), "weight": rng.standard_normal((4, C)).astype(f32),
            "conv_state": rng.standard_normal((S + 1, 3, C)).astype(bf16)}


def _conv_inputs(rng, T: int, S: int, C: int) -> dict:
    return {**_random_convolution(rng, T, S, C), **_plan_of(rng, T, S)}


def _conv_step_inputs(rng, S: int, C: int) -> dict:
    return {**_random_convolution(rng, S, S, C), **_step_of(rng, S)}


def _convolved(x, weight, conv_state, query_start_loc, state_slots) -> tuple:
    conv_state = conv_state.copy()
    batch = SimpleNamespace(query_start_loc=query_start_loc, state_slots=state_slots)
    return reference.causal_conv1d(x, weight, conv_state, batch), conv_state


def _of_plan(definition):
    """The definition with a plan's tables in the place of a batch."""
    def by_plan(*arrays, sequences, chunks, **named):
        starts = [*sequences[:, 0], sequences[-1, :2].sum()]
        return definition(*arrays, **named, query_start_loc=starts, state_slots=sequences[:, 2])

    return by_plan


def _of_step(definition):
    def by_rows(*arrays, token_rows, state_slots, **named):
        return definition(*arrays, **named, query_start_loc=np.arange(len(token_rows) + 1), state_slots=state_slots)

    return by_rows


def _launched(op, state: str, of_plan: bool):
    """Runs `op` on a spec's inputs; the output `state` is the state that it changes in place."""
    def launch(inputs, out):
        inputs = {**inputs, state: out[state]}
        if of_plan:
            inputs["plan"] = ChunkPlan(inputs.pop("sequences"), inputs.pop("chunks"))
        op(**inputs, out=out[next(iter(out))])

    return launch


def _delta_rule_outputs(S: int, Hv: int, K: int, V: int, T: int | None = None, bf16_state: bool = False, **_) -> dict:
    return {"o": ((S if T is None else T, Hv, V), bf16), "state": ((S + 1, Hv, K, V), bf16 if bf16_state else f32)}


def _conv_outputs(S: int, C: int, T: int | None = None) -> dict:
    return {"y": ((S if T is None else T, C), bf16), "conv_state": ((S + 1, 3, C), bf16)}


# What roundings inside may add, of the largest value in a row of o (over V) or of the state (over V).
#
# DECODE_ROUNDING: 16 roundings of f32. e^g multiplies the relative error of f32 in g, two or three roundings, by |g|, which rows
# that fade have up to 10; delta is a sum of K = 128 products in chains of 16 and 8, and the row's own two roundings come on top.
# Found at S = 1 to 128 and Hv = 6 to 48: up to 2^-21.4.
#
# PREFILL_ROUNDING: a product of the tensor core takes an f32 factor (S, R, D, T, B) as the sum of two bf16, short of it by up
# to 2^-17 of itself, and four such products follow one another. These are shares of the sums' terms: a row where they cancel, or
# whose k or q.k are all small, is up to ten times smaller than them. Roundings do not add up over chunks: between them the state
# is f32, and it forgets old ones as fast as old tokens. Found at 70 to 32,768 tokens: up to 2^-15.1.
#
# A bf16 state is compared over one chunk, at whose end it is rounded once; the chunks after it go on from what was rounded.
DECODE_ROUNDING, PREFILL_ROUNDING = 2.0**-20, 2.0**-14

_SMALL, _TINY = {"Hk": 1, "Hv": 1, "K": 64, "V": 32}, {"Hk": 4, "Hv": 8, "K": 64, "V": 64}
_DIMS, _BF16_STATE = {"Hk": 2, "Hv": 6, "K": 128, "V": 128}, {"bf16_state": True}

SPECS = (
    OpSpec("gdn.conv_step", cases=[{"S": 1, "C": 64}, {"S": 3, "C": 200}], gpu_cases=[{"S": 63, "C": 1024}],
           bench_cases=[{"S": 1024, "C": 10240}], make_inputs=_conv_step_inputs, outputs=_conv_outputs,
           reference=_of_step(_convolved),
           launch=_launched(conv_step, "conv_state", False), num_bytes=lambda S, C: 16 * S * C + 16 * C,
           in_place={"conv_state": "conv_state"}),
    OpSpec("gdn.conv", cases=[{"T": 3, "S": 2, "C": 64}, {"T": 150, "S": 2, "C": 12}],
           gpu_cases=[{"T": 500, "S": 7, "C": 1024}], bench_cases=[{"T": 8192, "S": 8, "C": 10240}],
           make_inputs=_conv_inputs, outputs=_conv_outputs, reference=_of_plan(_convolved),
           launch=_launched(conv_chunks, "conv_state", True), num_bytes=lambda T, S, C: 4 * T * C + 12 * S * C + 16 * C,
           in_place={"conv_state": "conv_state"}),
    OpSpec("gdn.decode", cases=[{"S": 1, **_SMALL}, {"S": 2, "Hk": 1, "Hv": 2, "K": 128, "V": 32}, {"S": 1, **_SMALL, **_BF16_STATE}],
           gpu_cases=[{"S": 3, **_TINY}, {"S": 63, **_DIMS}, {"S": 3, **_TINY, **_BF16_STATE}, {"S": 63, **_DIMS, **_BF16_STATE}],
           bench_cases=[],                                                           # bench/gdn.py has them
           make_inputs=_decode_inputs, outputs=_delta_rule_outputs,
           reference=_of_step(_delta_rule), launch=_launched(decode, "state", False),
           num_bytes=lambda S, Hv, K, V, bf16_state=False, **_: (4 if bf16_state else 8) * S * Hv * K * V,
           in_place={"state": "state"}, intermediate=DECODE_ROUNDING),
    OpSpec("gdn.prefill", cases=[{"T": 3, "S": 1, **_SMALL}],
           gpu_cases=[{"T": 500, "S": 3, **_TINY}, {"T": 300, "S": 2, **_DIMS},
                      {"T": 3, "S": 1, **_SMALL, **_BF16_STATE}, {"T": 140, "S": 3, **_TINY, **_BF16_STATE},
                      {"T": 100, "S": 2, **_DIMS, **_BF16_STATE}],
           bench_cases=[], make_inputs=_prefill_inputs, outputs=_delta_rule_outputs, reference=_of_plan(_delta_rule),
           launch=_launched(prefill, "state", True),
           num_bytes=lambda T, Hk, Hv, K, V, **_: 2 * T * (2 * Hk * K + 2 * Hv * V),
           in_place={"state": "state"}, intermediate=PREFILL_ROUNDING),
)
