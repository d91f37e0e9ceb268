"""A gated delta net remembers over 16,384 tokens: random keys are written over and over, and each still gives its last value.

Every token writes a random value under one of a few random keys, chosen at random; one key is written once, at the very
beginning. Then each key is asked for, by tokens that write nothing. The answer must be nearest to the value last written under
that key, among all the values that were ever written. A state that only adds (no delta) keeps a mixture of them, and fails.
"""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from vtlite import cpu, reference
from vtlite.reference.gdn import chunk_gated_delta_rule

T, KEYS, K, V = 16384, 12, 128, 128
OPEN, SHUT = 30.0, -30.0                        # logits of beta: 1 and 0 in bf16 and in f32
BF16 = ml_dtypes.bfloat16


class Task:
    """qkv [T + KEYS, C] and b [T + KEYS, 1] of one head without decay, and which token holds each key's last value."""

    def __init__(self):
        rng = np.random.default_rng(11)
        keys = rng.standard_normal((KEYS, K)).astype(BF16)
        which = rng.integers(1, KEYS, T)
        which[0] = 0
        asked = np.arange(KEYS)
        self.values = rng.standard_normal((T, V)).astype(BF16)
        rows = keys[np.concatenate([which, asked])]
        self.qkv = np.concatenate([rows, rows, np.concatenate([self.values, np.zeros((KEYS, V), BF16)])], axis=1)
        self.b = np.repeat([OPEN, SHUT], [T, KEYS])[:, None].astype(BF16)
        self.a = np.full_like(self.b, SHUT)                                            # g = -1e-13
        self.A_log, self.dt_bias = np.zeros((2, 1), np.float32)
        self.last = np.array([np.flatnonzero(which == key)[-1] for key in asked])

    def recalled(self, o: np.ndarray) -> np.ndarray:
        """Which written value each of the last KEYS outputs is nearest to, by direction."""
        answers, values = (x.astype(np.float32) for x in (o[-KEYS:, 0], self.values))
        return np.argmax(answers @ (values / np.linalg.norm(values, axis=1, keepdims=True)).T, axis=1)

    def by(self, rule, gates, dtype=np.float32) -> np.ndarray:
        q, k, v = (self.qkv[:, None, part].astype(dtype) for part in (slice(0, K), slice(K, 2 * K), slice(2 * K, None)))
        g, beta = gates(self.a.astype(dtype), self.b.astype(dtype), self.A_log, self.dt_bias)
        ends = np.array([0, len(q)])
        batch = SimpleNamespace(query_start_loc=ends, seq_lens=ends[1:], state_slots=np.array([0]))
        return rule(q, k, v, g, beta, np.zeros((1, 1, K, V), np.float32), batch)


@pytest.fixture(scope="module")
def task():
    return Task()


@pytest.mark.parametrize("rule, gates", [
    pytest.param(reference.gated_delta_rule, reference.gdn_gates, id="definition"),
    pytest.param(chunk_gated_delta_rule, reference.gdn_gates, id="definition by chunks"),
    pytest.param(cpu.gated_delta_rule, cpu.gdn_gates, id="cpu")])
def test_the_last_value_of_every_key_is_recalled(task, rule, gates):
    assert np.array_equal(task.recalled(task.by(rule, gates)), task.last)


def test_a_state_that_only_adds_recalls_nothing(task):
    """So the task asks for what the delta rule gives."""
    writes, keys = task.qkv[:T, 2 * K :].astype(np.float32), task.qkv[:, :K].astype(np.float32)
    o = keys[-KEYS:] @ (keys[:T].T @ writes)
    assert (task.recalled(o[:, None]) == task.last).sum() <= 2


@pytest.mark.gpu
@pytest.mark.parametrize("prompt", [T, 64, T + KEYS], ids=["prefill then decode", "decode", "prefill"])
def test_a_gpu_recalls_them(task, prompt):
    """The first `prompt` tokens by chunks, the others one by one."""
    from vtlite.cuda import gdn
    from vtlite.cuda.device import open_device, using
    from vtlite.cuda.gdn_plan import plan_chunks
    device = open_device("0")
    with using(device):
        arrays = [device.array(x) for x in (task.qkv, task.a, task.b, task.A_log, task.dt_bias)]
        state, o = device.zeros((1, 1, K, V), np.float32), device.zeros((T + KEYS, 1, V), BF16)
        slots = np.zeros(1, np.int64)
        plan = plan_chunks(np.array([0, prompt]), np.array([prompt]), slots, [0])
        gdn.prefill(*arrays, state, plan.on(device), out=o)
        rows, slots = device.array(np.arange(T + KEYS, dtype=np.int32)), device.array(slots)
        for token in range(prompt, T + KEYS):
            gdn.decode(*arrays, state, rows[token : token + 1], slots, out=o)
        assert np.array_equal(task.recalled(o.numpy()), task.last)
