"""The promise: ids and logprob bits of a request are those it gets alone, whatever else the engine does."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine
from vtlite.engine.outputs import CompletionOutput, RequestOutput
from vtlite.engine.sampling_params import SamplingParams
from vtlite.errors import ConfigError

MODELS = ("qwen3", "mistral_window", "qwen3_5")
STATE_BYTES = 3 * 4 * (3 * (2 * 32 + 96) + 4 * 16 * 24)      # of qwen3_5: three delta nets
PREFIX = list(range(40, 75))           # most prompts share some of it, so that the prefix cache has work

PARAMS = [
    SamplingParams(temperature=0, max_tokens=12, logprobs=2, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=5, prompt_logprobs=1, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=7, max_tokens=20, logprobs=0, ignore_eos=True),
    SamplingParams(temperature=0.8, top_k=20, top_p=0.9, seed=-3, max_tokens=9, logprobs=1, ignore_eos=True),
    SamplingParams(temperature=1.3, min_p=0.02, n=3, seed=11, max_tokens=8, logprobs=0, ignore_eos=True),
    SamplingParams(temperature=0.9, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, seed=5,
                   max_tokens=16, logprobs=3, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=10, logprobs=0, min_tokens=4, stop_token_ids=[*range(0, 300, 3)],
                   logit_bias={9: 4.0}),
]

prompts = st.one_of(
    st.builds(lambda n, tail: PREFIX[:n] + tail, st.integers(1, len(PREFIX)), st.lists(st.integers(0, 255), max_size=3)),
    st.lists(st.integers(0, 255), min_size=1, max_size=30),
)
requests = st.tuples(prompts.map(tuple), st.integers(0, len(PARAMS) - 1))


def collect(engine, arrivals, aborts=()):
    """Run requests given as (step of arrival, prompt, params, priority); returns their outputs, in order given."""
    outputs = [RequestOutput(str(i), None, list(prompt), [CompletionOutput(j) for j in range(params.n)])
               for i, (_, prompt, params, _) in enumerate(arrivals)]
    step, aborts = 0, dict(aborts)
    while engine.has_work or step <= max([at for at, *_ in arrivals] + list(aborts), default=0):
        for i, (at, prompt, params, priority) in enumerate(arrivals):
            if at == step:
                engine.add(str(i), prompt, params, priority)
        if step in aborts:
            engine.abort(str(aborts[step]))
        for delta in engine.step():
            outputs[int(delta.request_id)].add(delta)
        step += 1
        assert step < 5000, "the engine makes no progress"
    return outputs


def answer(output):
    """What must not change: ids, texts, reasons and the exact logprobs."""
    return output.outputs, output.prompt_logprobs


def everything_is_free(engine):
    free_slots = engine.loop.scheduler._free_slots
    return engine.pool.num_free == engine.pool.num_usable and sorted(free_slots) == [*range(1, engine.config.max_num_seqs + 1)]


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
        max_num_batched_tokens=data.draw(st.sampled_from([1, 3, 16, 50, 400])),
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


def test_a_recurrent_state_turns_the_prefix_cache_off_and_says_so(tiny_checkpoint, alone, caplog):
    with caplog.at_level("INFO", "vtlite.engine"):
        engine = Engine(tiny_checkpoint("qwen3_5"), EngineConfig(device="cpu", block_size=4, num_blocks=64))
    assert ["prefix cache off" in record.message for record in caplog.records] == [True]
    for _ in range(2):
        output = collect(engine, [(0, tuple(PREFIX), PARAMS[0], 0)])[0]
        assert answer(output) == alone("qwen3_5", tuple(PREFIX), 0)
        assert output.num_cached_tokens == 0


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
                                                         max_num_batched_tokens=data.draw(st.sampled_from([5, 400]))))
    mix = data.draw(st.lists(requests, min_size=2, max_size=6))
    aborts = data.draw(st.dictionaries(st.integers(0, 15), st.integers(0, len(mix) - 1), max_size=3))
    outputs = collect(engine, [(0, prompt, PARAMS[p], 0) for prompt, p in mix], aborts.items())
    for i, (prompt, p) in enumerate(mix):
        if i not in aborts.values():
            assert answer(outputs[i]) == alone(model, prompt, p)
    assert everything_is_free(engine)
    assert not engine.loop.runner._saved or engine.loop.scheduler._discards
