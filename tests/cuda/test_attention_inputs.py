"""One launch has the bits of norm, rotary and KV write one after another."""

import numpy as np
import pytest

from vtlite.cuda import attention_inputs as fused
from vtlite.cuda.kv_cache import write_kv
from vtlite.cuda.lang import bf16
from vtlite.cuda.norm import rms_norm
from vtlite.cuda.rope import rotary
from vtlite.errors import DeviceError

SHAPES = [(3, 9, 3, 64, 64, False, False), (2, 32, 8, 128, 128, True, False), (2, 16, 2, 256, 64, True, True)]


def one_after_another(q, k, v, cos, sin, kv, slot_mapping, q_norm=None, k_norm=None, eps=0.0, zero_centered=False):
    if q_norm is not None:
        q, k = rms_norm(q, q_norm, eps, zero_centered), rms_norm(k, k_norm, eps, zero_centered)
    write_kv(kv, rotary(k, cos, sin), v, slot_mapping)
    return rotary(q, cos, sin)


@pytest.mark.parametrize("T, H, Hkv, D, R, normed, zero_centered", SHAPES)
def test_the_bits_of_one_after_another_from_parts_of_one_projection(device, T, H, Hkv, D, R, normed, zero_centered):
    """Keys and values behind the queries; these lie between their gates in one case, as in gated attention. One token is padding."""
    rng = np.random.default_rng(T)
    host = fused._inputs(rng, T, H, Hkv, D, R, 2, normed, zero_centered)
    host["slot_mapping"][T // 2] = -1
    heads = device.array(rng.standard_normal((T, 2 * H + 2 * Hkv, D)).astype(bf16))
    parts = {"q": heads[:, 0 : 2 * H : 2] if zero_centered else heads[:, :H], "k": heads[:, 2 * H : 2 * H + Hkv], "v": heads[:, 2 * H + Hkv :]}
    shared = {name: device.array(value) if isinstance(value, np.ndarray) else value for name, value in host.items()} | parts
    expected_kv, kv = device.array(host["kv"]), device.array(host["kv"])
    expected = one_after_another(**shared | {"kv": expected_kv})
    found = fused.attention_inputs(**shared | {"kv": kv})
    assert found.numpy().tobytes() == expected.numpy().tobytes()
    assert kv.numpy().tobytes() == expected_kv.numpy().tobytes()


def test_a_head_that_no_warp_can_hold_is_refused(device):
    x = device.zeros((1, 1, 1032), bf16)
    angles = device.zeros((1, 32), np.float32)
    with pytest.raises(DeviceError, match="head_dim as a multiple of 8 up to 1024"):
        fused.attention_inputs(x, x, x, angles, angles, device.zeros((2, 1, 16, 1, 1032), bf16), device.zeros((1,), np.int64))
