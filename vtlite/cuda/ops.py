"""The operations on a GPU: the same names and arguments as `vtlite.reference`, on device arrays of bfloat16 activations.

Like the CPU's they fix the order of every sum, so that the bits of a row do not depend on the rows beside it. Each may be
given `out=`; without it the result is a new array, within a step a temporary.
"""

from vtlite.cuda.activation import gelu_tanh_and_mul, sigmoid_gate, silu_and_mul
from vtlite.cuda.attention import paged_attention
from vtlite.cuda.attention_inputs import attention_inputs
from vtlite.cuda.embed import embedding, gather_rows
from vtlite.cuda.gdn import gated_delta_net
from vtlite.cuda.kv_cache import write_kv
from vtlite.cuda.linear import linear, linear_silu_and_mul
from vtlite.cuda.norm import add_rms_norm, gated_rms_norm, rms_norm
from vtlite.cuda.rope import rope_cos_sin, rotary
from vtlite.cuda.sampling import sample, token_logprobs
from vtlite.cuda.uniform import uniform
from vtlite.reference import Samples

__all__ = [
    "Samples", "add_rms_norm", "attention_inputs", "embedding", "gated_delta_net", "gated_rms_norm", "gather_rows", "gelu_tanh_and_mul", "linear", "linear_silu_and_mul", "paged_attention",
    "rms_norm", "rope_cos_sin", "rotary", "sample", "sigmoid_gate", "silu_and_mul", "token_logprobs", "uniform", "write_kv",
]
