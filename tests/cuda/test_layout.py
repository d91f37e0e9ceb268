"""Kernels that take parts of one product read them where they lie; others say that they cannot."""

import numpy as np
import pytest

from vtlite.cuda.activation import sigmoid_gate
from vtlite.cuda.kv_cache import write_kv
from vtlite.cuda.lang import bf16, f32
from vtlite.cuda.norm import rms_norm
from vtlite.cuda.rope import rotary
from vtlite.errors import DeviceError

T, H, HKV, D = 3, 9, 3, 64            # heads and head_dim of OpSpec cases


@pytest.fixture
def qkv(device):
    values = np.random.default_rng(0).standard_normal((T, (H + 2 * HKV), D)).astype(bf16)
    whole = device.array(values)
    parts = [slice(0, H), slice(H, H + HKV), slice(H + HKV, None)]
    return [whole[:, p] for p in parts], [device.array(values[:, p].copy()) for p in parts]


def test_norm_of_heads(device, qkv):
    weight = device.array(np.ones(D, bf16))
    for part, copy in zip(*qkv):
        assert rms_norm(part, weight, 1e-6).numpy().tobytes() == rms_norm(copy, weight, 1e-6).numpy().tobytes()


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(device, qkv, interleaved):
    cos, sin = (device.array(np.random.default_rng(i).standard_normal((T, D // 2)).astype(f32)) for i in range(2))
    for part, copy in zip(*qkv):
        assert rotary(part, cos, sin, interleaved).numpy().tobytes() == rotary(copy, cos, sin, interleaved).numpy().tobytes()


def test_kv_write(device, qkv):
    caches = [device.zeros((2, 1, 16, HKV, D), bf16) for _ in range(2)]
    slots = device.array(np.array([5, 0, 9]))
    for cache, (_, k, v) in zip(caches, qkv):
        write_kv(cache, k, v, slots)
    assert caches[0].numpy().any() and caches[0].numpy().tobytes() == caches[1].numpy().tobytes()


def test_other_kernels_refuse_gaps(device, qkv):
    q = qkv[0][0]
    with pytest.raises(DeviceError, match=r"x \[3, 9, 64\] has strides \[1920, 128, 2\]; this kernel takes contiguous arrays"):
        sigmoid_gate(q, q)


def test_gaps_within_a_token_are_refused(device, qkv):
    with pytest.raises(DeviceError, match="only the first may leave gaps"):
        rms_norm(qkv[0][0][:, :, :8], device.array(np.ones(8, bf16)), 1e-6)
