"""The promise: ids and logprob bits of a request are those it gets alone, whatever else the engine does."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.mixes import PARAMS, PREFIX, answer, collect, everything_is_free
from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine
from vtlite.errors import ConfigError

MODELS = ("qwen3", "mistral_window", "qwen3_5")
STATE_BYTES = 3 * 4 * (3 * (2 * 32 + 96) + 4 * 16 * 24)      # of qwen3_5: three delta nets
LONG = [(7 * i + i // 9) % 256 for i in range(200)]          # for models with a recurrent state, cached every 64 tokens

prompts = st.one_of(
    st.builds(lambda n, tail: PREFIX[:n] + tail, st.integers(1, len(PREFIX)), st.lists(st.integers(0, 255), max_size=3)),
    st.lists(st.integers(0, 255), min_size=1, max_size=30),
)
requests = st.tuples(prompts.map(tuple), st.integers(0, len(PARAMS) - 1))


@pytest.fixture(scope="session")
def alone(tiny_checkpoint):
    """The answer of a request by itself: one step per prompt, no cache, blocks in plenty."""
    @cache
    def run(model, prompt, params_index):
        engine = Engine(tiny_checkpoint(model), EngineConfig(device="cpu", num_blocks=64, block_size=16,
                                                         enable_prefix_caching=False, max_num_batched_tokens=512))
        return answer(collect(engine, [(0, prompt, PARAMS[params_index], 0)])[0])
    return run


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_mix_gives_each_request_the_answer_it_gets_alone(tiny_checkpoint, alone, data):
    model = data.draw(st.sampled_from(MODELS))
    block_size = data.draw(st.sampled_from([1, 4, 16]))
    longest = 64
    fewest = -(-longest // block_size) + 1
    engine = Engine(tiny_checkpoint(model), EngineConfig(
        device="cpu", max_model_len=longest, block_size=block_size,
        num_blocks=data.draw(st.integers(fewest, 3 * fewest)),
        max_num_batched_tokens=data.draw(st.sampled_from([95, 400] if model == "qwen3_5" else [1, 3, 16, 50, 400])),
        max_num_seqs=data.draw(st.sampled_from([1, 3, 32])),
        enable_prefix_caching=data.draw(st.booleans()),
        scheduling_policy=data.draw(st.sampled_from(["fcfs", "priority"])),
    ))
    mix = data.draw(st.lists(requests, min_size=1, max_size=8))
    steps = data.draw(st.lists(st.integers(0, 12), min_size=len(mix), max_size=len(mix)))
    priorities = data.draw(st.lists(st.integers(-1, 1), min_size=len(mix), max_size=len(mix)))
    outputs = collect(engine, [(step, prompt, PARAMS[p], priority)
                               for step, (prompt, p), priority in zip(steps, mix, priorities)])
    for output, (prompt, p) in zip(outputs, mix):
        assert answer(output) == alone(model, prompt, p)
    assert everything_is_free(engine)


@pytest.mark.parametrize("model", MODELS)
def test_preemption_happens_and_changes_nothing(model, tiny_checkpoint, alone):
    """Blocks for one and a half requests, three requests that grow: some must be saved and restored."""
    engine = Engine(tiny_checkpoint(model), EngineConfig(device="cpu", max_model_len=64, block_size=4, num_blocks=17,
                                                         enable_prefix_caching=False))
    prompts = [tuple(PREFIX[:20]), tuple(PREFIX[5:25]), tuple(PREFIX[10:30])]
    outputs = collect(engine, [(0, prompt, PARAMS[2], 0) for prompt in prompts])
    assert engine.loop.scheduler.num_preemptions > 0
    assert [answer(output) for output in outputs] == [alone(model, prompt, 2) for prompt in prompts]


def test_a_prefix_hit_changes_nothing(tiny_checkpoint, alone):
    engine = Engine(tiny_checkpoint("qwen3"), EngineConfig(device="cpu", block_size=4, num_blocks=64))
    for _ in range(2):
        output = collect(engine, [(0, tuple(PREFIX), PARAMS[0], 0)])[0]
        assert answer(output) == alone("qwen3", tuple(PREFIX), 0)
    assert output.num_cached_tokens == len(PREFIX) // 4 * 4 - (len(PREFIX) % 4 == 0) * 4


def test_the_policy_of_kept_states_is_said(tiny_checkpoint, caplog):
    with caplog.at_level("INFO", "vtlite.engine"):
        engine = Engine(tiny_checkpoint("qwen3_5"), EngineConfig(device="cpu", num_blocks=64, state_cache_bytes=3 * STATE_BYTES))
        Engine(tiny_checkpoint("qwen3_5"), EngineConfig(device="cpu", num_blocks=64, state_cache_bytes=STATE_BYTES - 1))
    on, off = [record.message for record in caplog.records if "prefix cache" in record.message]
    assert "room for 3 recurrent states" in on and "multiple of 64 tokens" in on and "prefix cache off" in off
    assert len(engine.loop.scheduler.states.slots) == 3


@pytest.mark.parametrize("shared", (63, 64, 65, 127, 128, 129, 192))
def test_a_hit_at_every_grid_point_changes_nothing(shared, tiny_checkpoint, alone):
    """The second prompt has the first `shared` tokens of the first one, then others; the first part has its own state."""
    engine = Engine(tiny_checkpoint("qwen3_5"), EngineConfig(device="cpu", num_blocks=64, max_num_seqs=4, max_num_batched_tokens=67))
    first, second = tuple(LONG), (*LONG[:shared], *range(200, 220))
    for prompt, cached in ((first, 0), (second, shared // 64 * 64), (second, (len(second) - 1) // 64 * 64)):
        output = collect(engine, [(0, prompt, PARAMS[0], 0)])[0]
        assert answer(output) == alone("qwen3_5", prompt, 0)
        assert output.num_cached_tokens == cached


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_mix_on_few_kept_states_gives_each_request_the_answer_it_gets_alone(tiny_checkpoint, alone, data):
    seqs = data.draw(st.sampled_from([1, 3, 8]))
    engine = Engine(tiny_checkpoint("qwen3_5"), EngineConfig(
        device="cpu", max_model_len=256, block_size=16, num_blocks=data.draw(st.integers(17, 60)), max_num_seqs=seqs,
        max_num_batched_tokens=data.draw(st.sampled_from([seqs + 63, 150, 400])),
        state_cache_bytes=data.draw(st.integers(1, 4)) * STATE_BYTES))
    prompt = st.builds(lambda n, tail: (*LONG[:n], *tail), st.sampled_from([63, 64, 65, 100, 128, 130, 192, 200]),
                       st.lists(st.integers(0, 2), max_size=2))
    mix = data.draw(st.lists(st.tuples(st.integers(0, 20), prompt, st.sampled_from([0, 1, 2])), min_size=2, max_size=6))
    outputs = collect(engine, [(at, prompt, PARAMS[p], 0) for at, prompt, p in mix])
    for output, (_, prompt, p) in zip(outputs, mix):
        assert answer(output) == alone("qwen3_5", prompt, p)
    assert everything_is_free(engine)


def test_a_budget_too_small_for_a_part_of_a_prompt_is_refused(tiny_checkpoint):
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 66, but parts .* 67 are needed"):
        Engine(tiny_checkpoint("qwen3_5"), EngineConfig(device="cpu", num_blocks=64, max_num_seqs=4, max_num_batched_tokens=66))


def test_requests_that_run_at_once_are_as_many_as_states_fit(tiny_checkpoint, alone, monkeypatch):
    """Room for two and a half states: three requests still finish, two at a time; room for half of one is refused."""
    def load(state_count):
        monkeypatch.setattr("vtlite.engine.engine.default_kv_cache_bytes", lambda: int(state_count * STATE_BYTES))
        return Engine(tiny_checkpoint("qwen3_5"), EngineConfig(device="cpu", block_size=4, num_blocks=64, max_model_len=64))

    engine, prompts = load(2.5), [tuple(PREFIX[i : i + 9]) for i in range(3)]
    assert len(engine.loop.scheduler._free_slots) == 2
    outputs = collect(engine, [(0, prompt, PARAMS[0], 0) for prompt in prompts])
    assert [answer(output) for output in outputs] == [alone("qwen3_5", prompt, 0) for prompt in prompts]
    with pytest.raises(ConfigError, match="the recurrent state of one request takes 0.0 MiB, and"):
        load(0.5)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_aborting_frees_everything_and_disturbs_nobody(tiny_checkpoint, alone, data):
    model = data.draw(st.sampled_from(["qwen3", "qwen3_5"]))
    engine = Engine(tiny_checkpoint(model), EngineConfig(device="cpu", max_model_len=64, block_size=4,
                                                         num_blocks=data.draw(st.integers(17, 40)),
                                                         max_num_batched_tokens=data.draw(st.sampled_from([5, 400])) if model == "qwen3" else 400))
    mix = data.draw(st.lists(requests, min_size=2, max_size=6))
    aborts = data.draw(st.dictionaries(st.integers(0, 15), st.integers(0, len(mix) - 1), max_size=3))
    outputs = collect(engine, [(0, prompt, PARAMS[p], 0) for prompt, p in mix], aborts.items())
    for i, (prompt, p) in enumerate(mix):
        if i not in aborts.values():
            assert answer(outputs[i]) == alone(model, prompt, p)
    assert everything_is_free(engine)
    assert not engine.loop.runner._saved or engine.loop.scheduler._discards
