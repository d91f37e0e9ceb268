"""Gated delta net on a GPU: convolution, gates, L2 norms and the delta rule (reference/gdn.py has the equations).

Generated tokens take two launches: gdn_conv.conv_step_kernel and gdn_decode.decode_kernel, the recurrence in f32. Prompt tokens
take three: gdn_conv.conv_chunk_kernel, gdn_chunk.chunk_kernel and gdn_scan.scan_kernel, the chunk form on the grid of 64 positions.
Which of the two a token gets follows from what it is, never from the step it is computed in, so its bits do not depend on the batch,
on where a prompt is cut, or on whether its beginning came out of a cache.
"""

from vtlite.cuda import gdn_chunk, gdn_conv, gdn_decode, gdn_scan
from vtlite.cuda.device import current
from vtlite.cuda.gdn_plan import CHUNK, ChunkPlan
from vtlite.cuda.lang import bf16, f32
from vtlite.cuda.layout import need_contiguous
from vtlite.errors import DeviceError

SHARED_MEMORY = {"sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10, "sm_120": 99 << 10, "sm_121": 99 << 10}     # per block
MOST_SHARED_MEMORY = 227 << 10                                                         # of the chips not named


def conv_step(x, weight, conv_state, token_rows, state_slots, *, out) -> None:
    """causal_conv1d for one token of each of S sequences: rows token_rows[:S] i32 of x [T, C] bf16 and of `out` [T, C] bf16.

    weight [4, C] f32; conv_state [slots, 3, C] bf16, in place, at state_slots [S] i64. x may leave gaps between rows.
    """
    need_contiguous(weight=weight, conv_state=conv_state, out=out)
    channels = x.shape[1]
    grid = -(-channels // (4 * gdn_conv.THREADS)), len(state_slots)
    current().launch(gdn_conv.conv_step_kernel.specialize(CHANNELS=channels), grid, x, weight, conv_state, token_rows, state_slots,
                     out, _stride("x", x, 8))


def conv_chunks(x, weight, conv_state, plan: ChunkPlan, *, out) -> None:
    """causal_conv1d for the rows of a plan: as conv_step."""
    need_contiguous(weight=weight, conv_state=conv_state, out=out)
    channels = x.shape[1]
    grid = -(-channels // (4 * gdn_conv.THREADS)), len(plan.chunks) * (CHUNK // gdn_conv.ROWS)
    current().launch(gdn_conv.conv_chunk_kernel.specialize(CHANNELS=channels), grid, x, weight, conv_state, plan.sequences,
                     plan.chunks, out, _stride("x", x, 8))


def decode(qkv, a, b, A_log, dt_bias, state, token_rows, state_slots, *, out, v_tile: int | None = None) -> None:
    """gated_delta_rule for one token of each of S sequences: rows token_rows[:S] i32 of qkv [T, C] bf16 and of `out` [T, Hv, V] bf16.

    a, b [T, Hv] bf16, with one distance between rows; A_log, dt_bias [Hv] f32; state [slots, Hv, K, V] f32, in place, at state_slots
    [S] i64. v_tile, columns of a state per block, is a choice of speed alone.
    """
    need_contiguous(qkv=qkv, state=state, out=out)
    dims = _dims(qkv, state)
    Hv, V = dims["NUM_V_HEADS"], dims["V"]
    if v_tile is None:
        v_tile = V if len(state_slots) * Hv >= 4 * current().num_sms else 32
    current().launch(gdn_decode.decode_kernel.specialize(**dims, V_TILE=v_tile), (V // v_tile, Hv, len(state_slots)),
                     qkv, a, b, A_log, dt_bias, state, token_rows, state_slots, out, _gate_stride(a, b))


def prefill(qkv, a, b, A_log, dt_bias, state, plan: ChunkPlan, *, out, warps: int | None = None, stages: int | None = None) -> None:
    """gated_delta_rule for the rows of a plan, by chunks: as decode.

    warps and stages (gdn_scan.py) are choices of speed alone. 33 KiB per chunk and value head pass from the first kernel to the second.
    """
    need_contiguous(qkv=qkv, state=state, out=out)
    dims = _dims(qkv, state)
    Hk, Hv, K, V = dims.values()
    num_chunks, num_parts = len(plan.chunks), len(plan.sequences)
    transforms = current().empty((num_chunks, Hv, 4, CHUNK, CHUNK), bf16)
    scales = current().empty((num_chunks, Hv, 4, CHUNK), f32)
    current().launch(gdn_chunk.chunk_kernel.specialize(**dims), (Hk, num_chunks), qkv, a, b, A_log, dt_bias, plan.sequences,
                     plan.chunks, transforms, scales, _gate_stride(a, b))
    if warps is None:
        warps = V // 16 if num_parts * Hv >= current().num_sms else min(4, V // 16)
    if stages is None:
        stages = 2 if 2 * gdn_scan.stage_bytes(K) <= SHARED_MEMORY.get(current().chip, MOST_SHARED_MEMORY) else 1
    current().launch(gdn_scan.scan_kernel.specialize(**dims, WARPS=warps, STAGES=stages), (V // (16 * warps), Hv, num_parts),
                     qkv, transforms, scales, state, plan.sequences, plan.chunks, out)


def _dims(qkv, state) -> dict[str, int]:
    """Hk, Hv, K, V of the kernels."""
    _, Hv, K, V = state.shape
    Hk = (qkv.shape[1] - Hv * V) // (2 * K)
    if K not in (64, 128) or V % 32 or not 0 < Hk <= Hv or Hv % Hk or qkv.shape[1] != 2 * Hk * K + Hv * V:
        raise DeviceError(f"the kernels of gated delta nets take K of 64 or 128, V as a multiple of 32 and Hv as a multiple of Hk; found "
                          f"a state {list(state.shape)} and qkv {list(qkv.shape)}")
    return {"NUM_K_HEADS": Hk, "NUM_V_HEADS": Hv, "K": K, "V": V}


def _stride(name: str, x, unit: int) -> int:
    """Vectors of `unit` bytes from one row of x [T, C] to the next."""
    if x.strides[1] != x.dtype.itemsize or x.strides[0] % unit or x.address % unit:
        raise DeviceError(f"{name} {list(x.shape)} has strides {list(x.strides)}; its rows must be contiguous and begin at multiples of "
                          f"{unit} bytes: copy it")
    return x.strides[0] // unit


def _gate_stride(a, b) -> int:
    stride = _stride("a", a, 2)
    if _stride("b", b, 2) != stride:
        raise DeviceError(f"a and b should have one distance between rows, found {a.strides[0]} and {b.strides[0]} bytes")
    return stride
