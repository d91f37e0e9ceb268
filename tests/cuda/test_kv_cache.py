"""KV write: what its OpSpec does not say."""

import numpy as np

from vtlite.cuda import kv_cache
from vtlite.cuda.kv_cache import write_kv
from vtlite.cuda.lang import bf16


def inputs(device, **case):
    made = kv_cache._inputs(np.random.default_rng(1), **case)
    return {name: device.array(value) for name, value in made.items()}


def test_tokens_one_at_a_time_leave_the_cache_of_a_batch(device):
    x = inputs(device, T=5, H=2, D=16, blocks=2)
    one_by_one = device.array(x["kv"].numpy())
    write_kv(**x)
    for t in range(5):
        write_kv(one_by_one, *(x[name][t : t + 1] for name in ("k", "v", "slot_mapping")))
    assert one_by_one.numpy().tobytes() == x["kv"].numpy().tobytes()


def test_negative_slots_are_padding(device):
    x = inputs(device, T=4, H=1, D=8, blocks=1)
    before = x["kv"].numpy()
    x["slot_mapping"].copy_from(np.array([-1, 3, -1, -7]))
    write_kv(**x)
    after = x["kv"].numpy()
    changed = (before != after).any(axis=(3, 4))                   # [2, blocks, block_size]
    assert np.argwhere(changed).tolist() == [[0, 0, 3], [1, 0, 3]]
    assert after.dtype == bf16 and np.array_equal(after[0, 0, 3], x["k"].numpy()[1])
