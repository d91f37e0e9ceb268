"""The definition of every operation in NumPy.

Precision follows the activations: float64 in, float64 throughout; float32 likewise; bfloat16 in,
float32 inside and **one rounding to bfloat16 when the op returns**. Those returns are the documented
rounding points, so a device result can be judged in units of expected rounding. Weights may be any
float type; they are widened exactly.

These functions define values, not bits: a NumPy matrix product may sum in an order that follows
its shape. `vtlite.cpu` and `vtlite.cuda` export the same names and do fix their order.
"""

from vtlite.reference.activation import gelu_tanh_and_mul, sigmoid_gate, silu_and_mul
from vtlite.reference.attention import paged_attention, write_kv
from vtlite.reference.composed import attention_inputs_of, linear_silu_and_mul_of
from vtlite.reference.embed import embedding, gather_rows
from vtlite.reference.gdn import causal_conv1d, gated_delta_net, gated_delta_rule, gdn_gates
from vtlite.reference.linear import linear
from vtlite.reference.norm import add_rms_norm, gated_rms_norm, rms_norm
from vtlite.reference.rope import rope_cos_sin, rotary
from vtlite.reference.sampling import Samples, sample, token_logprobs
from vtlite.reference.uniform import uniform

attention_inputs = attention_inputs_of(rms_norm, rotary, write_kv)
linear_silu_and_mul = linear_silu_and_mul_of(linear, silu_and_mul)

__all__ = [
    "Samples", "add_rms_norm", "attention_inputs", "causal_conv1d", "embedding", "gated_delta_net", "gated_delta_rule", "gated_rms_norm",
    "gather_rows", "gdn_gates", "gelu_tanh_and_mul", "linear", "linear_silu_and_mul", "paged_attention", "rms_norm", "rope_cos_sin", "rotary",
    "sample", "sigmoid_gate", "silu_and_mul", "token_logprobs", "uniform", "write_kv",
]
