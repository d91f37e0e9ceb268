"""Requests of every kind, and an engine run with a mix of them: what the tests of "one request, one answer" share."""

from vtlite.engine.outputs import CompletionOutput, RequestOutput
from vtlite.engine.sampling_params import SamplingParams

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
