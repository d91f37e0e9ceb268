"""Recurrent states kept in bfloat16: half the bytes, and an answer that no cut, neighbour, hit or preemption changes.

States are rounded where a step may end and nowhere else, so the same places are rounded whatever steps there are.
"""

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.mixes import PARAMS, answer, collect, everything_is_free
from tests.tiny_device import DEVICE_HYBRIDS
from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine
from vtlite.errors import ConfigError

MODEL = "qwen3_5"
F32_BYTES, CONV_BYTES = 3 * 4 * 4 * 16 * 24, 3 * 4 * 3 * (2 * 32 + 96)     # of its three delta nets
STATE_BYTES = F32_BYTES // 2 + CONV_BYTES
LONG = [(7 * i + i // 9) % 256 for i in range(200)]
PROMPTS = [tuple(LONG[i : 20 + i]) for i in (0, 5, 10)]


@pytest.fixture(scope="module")
def load(tiny_checkpoint):
    def load(dtype: str = "bfloat16", **options) -> Engine:
        options = {"num_blocks": 64, "max_num_seqs": 4, **options}
        return Engine(tiny_checkpoint(MODEL), EngineConfig(device="cpu", mamba_ssm_cache_dtype=dtype, **options))
    return load


@pytest.fixture(scope="module")
def alone(load):
    """The answer of a request by itself: its prompt in one step, no cache."""
    @cache
    def run(prompt: tuple[int, ...], params: int, dtype: str = "bfloat16"):
        engine = load(dtype, enable_prefix_caching=False, max_num_batched_tokens=512)
        return answer(collect(engine, [(0, prompt, PARAMS[params], 0)])[0])
    return run


def test_it_takes_half_the_bytes_and_room_is_counted_in_them(load, monkeypatch):
    monkeypatch.setattr("vtlite.engine.engine.default_kv_cache_bytes", lambda: 9 * STATE_BYTES)
    narrow, wide = (load(dtype, max_num_seqs=256, state_cache_bytes=2 * STATE_BYTES) for dtype in ("bfloat16", "float32"))
    assert [len(engine.loop.scheduler.states.slots) for engine in (narrow, wide)] == [2, 1]
    assert [len(engine.loop.scheduler._free_slots) for engine in (narrow, wide)] == [7, 4]
    conv_state, state = narrow.loop.runner.states[0]
    assert state.dtype == ml_dtypes.bfloat16 and conv_state.dtype == np.float32
    assert 2 * state[0].nbytes == wide.loop.runner.states[0][1][0].nbytes and narrow.model.state_shapes == [
        [(conv_state.shape[1:], conv_state.dtype), (state.shape[1:], state.dtype)]] * 3


def test_a_prompts_logprobs_differ_a_little_from_those_of_an_f32_state_after_64_tokens(alone):
    found = [[at[token].logprob for token, at in zip(LONG[1:], logprobs[1:])] for _, logprobs in
             (alone(tuple(LONG), 1), alone(tuple(LONG), 1, "float32"))]
    difference = np.abs(np.subtract(*found))
    assert not difference[:64].any() and (difference[64:] > 0).mean() > 0.9 and difference.max() < 0.1


@pytest.mark.parametrize("shared", (63, 64, 65, 128, 192))
def test_cuts_and_a_hit_at_every_grid_point_change_nothing(shared, load, alone):
    """The second prompt has the first `shared` tokens of the first one, then others; steps have 67 tokens."""
    engine, second = load(max_num_batched_tokens=67), (*LONG[:shared], *range(200, 220))
    for prompt, cached in ((tuple(LONG), 0), (second, shared // 64 * 64), (second, (len(second) - 1) // 64 * 64)):
        output = collect(engine, [(0, prompt, PARAMS[0], 0)])[0]
        assert answer(output) == alone(prompt, 0) and output.num_cached_tokens == cached


def test_a_preempted_request_comes_back_with_its_state(load, alone):
    engine = load(max_model_len=64, block_size=4, num_blocks=17, enable_prefix_caching=False)
    outputs = collect(engine, [(0, prompt, PARAMS[2], 0) for prompt in PROMPTS])
    assert engine.loop.scheduler.num_preemptions > 0
    assert [answer(output) for output in outputs] == [alone(prompt, 2) for prompt in PROMPTS]


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_mix_gives_each_request_the_answer_it_gets_alone(load, alone, data):
    seqs = data.draw(st.sampled_from([1, 3, 8]))
    engine = load(max_model_len=256, num_blocks=data.draw(st.integers(17, 60)), max_num_seqs=seqs,
                  max_num_batched_tokens=data.draw(st.sampled_from([seqs + 63, 150, 400])),
                  enable_prefix_caching=data.draw(st.booleans()), state_cache_bytes=data.draw(st.integers(1, 4)) * STATE_BYTES)
    prompt = st.builds(lambda n, tail: (*LONG[:n], *tail), st.sampled_from([5, 63, 64, 65, 100, 128, 130, 192, 200]),
                       st.lists(st.integers(0, 2), max_size=2))
    mix = data.draw(st.lists(st.tuples(st.integers(0, 20), prompt, st.sampled_from([0, 1, 2])), min_size=2, max_size=6))
    outputs = collect(engine, [(at, prompt, PARAMS[p], 0) for at, prompt, p in mix])
    assert [answer(output) for output in outputs] == [alone(prompt, p) for _, prompt, p in mix]
    assert everything_is_free(engine)


def test_the_arithmetic_of_a_gpu_gives_the_same_bits_whole_cut_and_after_a_hit(tmp_path):
    checkpoint, prompt = DEVICE_HYBRIDS.build("hybrid_smallest", tmp_path / "hybrid"), tuple(t % 32 for t in LONG[:150])

    def load(**options) -> Engine:
        return Engine(checkpoint, EngineConfig(device="sm_90", mamba_ssm_cache_dtype="bfloat16", num_blocks=32, max_num_seqs=2, **options))

    def run(engine: Engine):
        return collect(engine, [(0, prompt, PARAMS[0], 0)])[0]

    whole, cutting = run(load(enable_prefix_caching=False)), load(max_num_batched_tokens=65)
    missed, hit = run(cutting), run(cutting)
    assert answer(missed) == answer(hit) == answer(whole) and hit.num_cached_tokens == 128


def test_what_cannot_be_is_refused(tiny_checkpoint):
    with pytest.raises(ConfigError, match="mamba_ssm_cache_dtype should be float32 or bfloat16, found 'float16'"):
        EngineConfig(mamba_ssm_cache_dtype="float16")
    with pytest.raises(ConfigError, match="mamba_ssm_cache_dtype is bfloat16, but Qwen3ForCausalLM has no recurrent state .* leave it out"):
        Engine(tiny_checkpoint("qwen3"), EngineConfig(device="cpu", mamba_ssm_cache_dtype="bfloat16"))
