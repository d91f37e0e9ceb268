"""Kernels that take parts of one product read them where they lie; others say that they cannot."""

import numpy as np
import pytest

from vtlite.cuda.activation import sigmoid_gate
from vtlite.cuda.kv_cache import write_kv
from vtlite.cuda.lang import bf16, f32
from vtlite.cuda.norm import gated_rms_norm, rms_norm
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


def test_norms_and_gates_of_every_second_head(device, qkv):
    """As queries lie between their gates; and a gate that is one part of a product."""
    (q, _, _), (copy, _, _) = qkv
    heads, gates = q[:, 0:8:2], q[:, 1:8:2]
    x, gate = (device.array(copy.numpy()[:, start:8:2].copy()) for start in range(2))
    weight, wide = device.array(np.ones(D, bf16)), device.array(np.ones(D, f32))
    assert rms_norm(heads, weight, 1e-6).numpy().tobytes() == rms_norm(x, weight, 1e-6).numpy().tobytes()
    assert gated_rms_norm(x, gates, wide, 1e-6).numpy().tobytes() == gated_rms_norm(x, gate, wide, 1e-6).numpy().tobytes()
    assert sigmoid_gate(x, gates).numpy().tobytes() == sigmoid_gate(x, gate).numpy().tobytes()


def test_rows_with_gaps_between_them_can_be_split(device):
    values = np.random.default_rng(0).standard_normal((5, 96)).astype(f32)
    columns = device.array(values)[:, 32:]
    assert np.array_equal(columns.reshape(5, 4, -1).numpy(), values[:, 32:].reshape(5, 4, 16))
    with pytest.raises(DeviceError, match="is not contiguous and cannot be reshaped"):
        columns.reshape(-1)


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


def test_gaps_where_none_may_be_are_refused(device, qkv):
    (q, k, v), weight = qkv[0], device.array(np.ones(D, bf16))
    with pytest.raises(DeviceError, match="only the first may leave gaps"):
        write_kv(device.zeros((2, 1, 16, 2, D), bf16), k[:, ::2], v[:, ::2], device.array(np.arange(T)))
    with pytest.raises(DeviceError, match=r"strides \[1920, 128, 4\]; expected \[tokens, D\] or \[tokens, heads, D\]"):
        rms_norm(q[:, :, ::2], weight, 1e-6)
    with pytest.raises(DeviceError, match="begin 8 bytes past a multiple of 16"):
        rms_norm(q[:, :, 4:60], weight, 1e-6)


def test_part_of_an_array_takes_over_another_part(device):
    """As the state of one slot goes to another, in order with the kernels before and after."""
    values = np.random.default_rng(0).standard_normal((4, 2, 64)).astype(bf16)
    states, weight = device.array(values), device.array(np.ones(64, bf16))
    rms_norm(states[0], weight, 1e-6, out=states[1])
    states[3].copy_from(states[1])
    rms_norm(states[2], weight, 1e-6, out=states[1])
    norms = [rms_norm(device.array(values[i]), weight, 1e-6).numpy() for i in (0, 2)]
    for found, expected in zip(states.numpy(), (values[0], norms[1], values[2], norms[0])):
        assert found.tobytes() == expected.tobytes()
    with pytest.raises(DeviceError, match="shape and dtype must be equal"):
        states[0].copy_from(states[:2])
