"""The operations on a CPU: the same names and arguments as `vtlite.reference`, for float32 activations.

What is hot is compiled by Numba, with one fixed order of every sum: the bits of a row do not depend on how many rows,
sequences or threads run beside it. The rest is the reference's own function.
"""

from vtlite.cpu.activation import silu_and_mul
from vtlite.cpu.attention import paged_attention, write_kv
from vtlite.cpu.linear import linear
from vtlite.cpu.norm import rms_norm
from vtlite.cpu.rope import rope_cos_sin, rotary
from vtlite.reference import Samples, embedding, sample, token_logprobs

__all__ = [
    "Samples", "embedding", "linear", "paged_attention", "rms_norm", "rope_cos_sin", "rotary", "sample",
    "silu_and_mul", "token_logprobs", "write_kv",
]
