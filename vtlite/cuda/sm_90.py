"""The kernels' arithmetic on NumPy arrays: what a Hopper GPU computes, bit for bit, without running every thread.

Names and arguments are those of vtlite/reference. That defines values; these functions define the bits as well, for a whole
model's answer as a GPU gives it (`--device sm_90`). Activations are bfloat16. Of a layer's parts, attention and delta nets are
in attention_arithmetic.py and gdn_arithmetic.py; where bits are a matter of definition, the definition's function serves.
"""

import numpy as np

from vtlite.cuda import norm, tensor_core
from vtlite.cuda.attention_arithmetic import paged_attention
from vtlite.cuda.gdn_arithmetic import gated_delta_net
from vtlite.cuda.lang.types import bf16, f32, i32, u16
from vtlite.elementary import cos, exp, gelu_tanh, rsqrt, silu, sin
from vtlite.ieee import div, fma, i32_to_f32, mul
from vtlite.reference import Samples, embedding, gather_rows, sample, token_logprobs, uniform, write_kv
from vtlite.reference.composed import attention_inputs_of, linear_silu_and_mul_of

__all__ = [
    "Samples", "add_rms_norm", "attention_inputs", "embedding", "gated_delta_net", "gated_rms_norm", "gather_rows", "gelu_tanh_and_mul",
    "linear", "linear_silu_and_mul", "paged_attention", "rms_norm", "rope_cos_sin", "rotary", "sample", "sigmoid_gate", "silu_and_mul", "token_logprobs", "uniform", "write_kv",
]


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None,
           residual: np.ndarray | None = None, out_dtype: np.dtype | None = None) -> np.ndarray:
    """x [T, K], weight [N, K], bias [N], residual [T, N] bf16 -> [T, N] in `out_dtype` (default bf16): see linear.py."""
    K = -(-x.shape[1] // tensor_core.STEP) * tensor_core.STEP
    y = tensor_core.chain(_padded(x, K), _padded(weight, K), np.zeros((len(x), len(weight)), f32))
    if bias is not None:
        y += bias.astype(f32)
    if residual is not None:
        y += residual.astype(f32)
    return y.astype(out_dtype or x.dtype, copy=False)


def _padded(x: np.ndarray, K: int) -> np.ndarray:
    """Bit patterns of bf16 rows, with zeros up to K."""
    return np.pad(x.view(u16), ((0, 0), (0, K - x.shape[1])))


# -- activation.py

def silu_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """gate_up [T, 2 F] bf16, gate in the first half, up in the second -> [T, F] bf16."""
    gate, up = np.split(gate_up.astype(f32), 2, axis=-1)
    return mul(silu(gate), up).astype(bf16)


def gelu_tanh_and_mul(gate_up: np.ndarray) -> np.ndarray:
    """As silu_and_mul."""
    gate, up = np.split(gate_up.astype(f32), 2, axis=-1)
    return mul(gelu_tanh(gate), up).astype(bf16)


def sigmoid_gate(x: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """x, gate of one shape, bf16 -> x sigmoid(gate) bf16."""
    return div(x.astype(f32), f32(1) + exp(-gate.astype(f32))).astype(bf16)


# -- norm.py

def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float, zero_centered: bool = False) -> np.ndarray:
    """x [..., D], weight [D] bf16 -> [..., D] bf16."""
    return _scaled(x, weight.astype(f32) + f32(zero_centered), eps).astype(bf16)


def add_rms_norm(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, eps: float,
                 zero_centered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """x, residual [..., D], weight [D] bf16 -> the norm of h, and h = x + residual, bf16."""
    h = (x.astype(f32) + residual.astype(f32)).astype(bf16)
    return rms_norm(h, weight, eps, zero_centered), h


def gated_rms_norm(x: np.ndarray, z: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x, z [..., D] bf16, weight [D] f32 -> [..., D] bf16."""
    return mul(_scaled(x, weight, eps), silu(z.astype(f32))).astype(bf16)


def _scaled(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / rms * weight in f32."""
    inverse = rsqrt(mul(_sum_of_squares(x), f32(1.0 / x.shape[-1])) + f32(eps))
    return mul(mul(x.astype(f32), inverse), weight)


def _sum_of_squares(x: np.ndarray) -> np.ndarray:
    """x [..., D] bf16 -> [..., 1] f32, by the threads that share a row: each its vectors of 8, then group_sum's tree."""
    layout, D = norm.layout(x.shape[-1]), x.shape[-1]
    group, vectors = layout["GROUP"], layout["VECTORS"]
    padded = np.zeros((*x.shape[:-1], vectors * group * 8), f32)
    padded[..., :D] = x
    of_thread = padded.reshape(*x.shape[:-1], vectors, group, 8)
    total = np.zeros((*x.shape[:-1], group), f32)
    for v in range(vectors):
        for i in range(8):
            total = fma(of_thread[..., v, :, i], of_thread[..., v, :, i], total)
    lanes = total.reshape(*x.shape[:-1], -(-group // 32), min(group, 32))
    while lanes.shape[-1] > 1:                               # lanes far apart add first, as in xor's tree
        low, high = np.split(lanes, 2, axis=-1)
        lanes = low + high
    warps = lanes[..., 0]
    return sum((warps[..., w : w + 1] for w in range(1, warps.shape[-1])), warps[..., :1])


# -- rope.py

def rope_cos_sin(positions: np.ndarray, inv_freq: np.ndarray, attention_factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """positions [T], inv_freq [R/2] f32 -> cos, sin [T, R/2] f32."""
    angle = mul(i32_to_f32(positions.astype(i32))[:, None], inv_freq)
    return mul(cos(angle), f32(attention_factor)), mul(sin(angle), f32(attention_factor))


def rotary(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool = False) -> np.ndarray:
    """x [T, H, D] bf16, cos and sin [T, R/2] f32 -> [T, H, D] bf16."""
    half, y, (cos, sin) = cos.shape[-1], x.copy(), (cos[:, None], sin[:, None])
    first, second = ((slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved
                     else (slice(half), slice(half, 2 * half)))
    x1, x2 = x[..., first].astype(f32), x[..., second].astype(f32)
    y[..., first] = fma(x1, cos, -mul(x2, sin)).astype(bf16)
    y[..., second] = fma(x2, cos, mul(x1, sin)).astype(bf16)
    return y


attention_inputs = attention_inputs_of(rms_norm, rotary, write_kv)
linear_silu_and_mul = linear_silu_and_mul_of(linear, silu_and_mul)
