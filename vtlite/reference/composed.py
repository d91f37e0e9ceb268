"""Operations that are others one after another, roundings included: a GPU does each in one launch."""

from collections.abc import Callable


def linear_silu_and_mul_of(linear: Callable, silu_and_mul: Callable) -> Callable:
    def linear_silu_and_mul(x, weight, bias=None):
        """x [T, K], weight [2 F, K], gates first, bias [2 F] -> silu_and_mul of the linear layer, [T, F]."""
        return silu_and_mul(linear(x, weight, bias))

    return linear_silu_and_mul


def attention_inputs_of(rms_norm: Callable, rotary: Callable, write_kv: Callable) -> Callable:
    def attention_inputs(q, k, v, cos, sin, kv, slot_mapping, q_norm=None, k_norm=None, eps: float = 0.0, zero_centered: bool = False):
        """q [T, H, D], k, v [T, Hkv, D], cos, sin [T, R/2] -> rotated q [T, H, D].

        q and k are normed over D where there are norms [D], then turned; k and v go to the flat slots slot_mapping [T] of
        kv [2, num_blocks, block_size, Hkv, D], in place.
        """
        if q_norm is not None:
            q, k = rms_norm(q, q_norm, eps, zero_centered), rms_norm(k, k_norm, eps, zero_centered)
        write_kv(kv, rotary(k, cos, sin), v, slot_mapping)
        return rotary(q, cos, sin)

    return attention_inputs
