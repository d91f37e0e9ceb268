"""The operations on a CPU: the same names and arguments as `vtlite.reference`, for float32 activations.

What is hot is compiled by Numba, with one fixed order of every sum: the bits of a row do not depend on how many rows,
sequences or threads run beside it. What is not named here is the reference's own function.
"""

from vtlite.reference import *  # noqa: F403
from vtlite.reference import __all__
from vtlite.reference.composed import attention_inputs_of, linear_silu_and_mul_of
from vtlite.cpu.activation import gelu_tanh_and_mul, sigmoid_gate, silu_and_mul
from vtlite.cpu.attention import paged_attention, write_kv
from vtlite.cpu.embed import embedding, gather_rows
from vtlite.cpu.gdn import causal_conv1d, gated_delta_net, gated_delta_rule, gdn_gates
from vtlite.cpu.linear import linear
from vtlite.cpu.norm import add_rms_norm, gated_rms_norm, rms_norm
from vtlite.cpu.replay import replayed
from vtlite.cpu.rope import rope_cos_sin, rotary
from vtlite.cpu.sampling import sample, token_logprobs

attention_inputs = attention_inputs_of(rms_norm, rotary, write_kv)
linear_silu_and_mul = linear_silu_and_mul_of(linear, silu_and_mul)
