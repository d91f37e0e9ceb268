"""A decode step made again from a recording has the bits of one that Python ran."""

import numpy as np
import pytest

from tests.tiny_families import FAMILY_OF
from vtlite import LLM, SamplingParams, tap
from vtlite.cpu import replay

PARAMS = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, logprobs=3) for n in (24, 6, 15)]


def answers(llm, prompts):
    return [(out.outputs[0].token_ids, out.outputs[0].logprobs) for out in llm.generate(prompts, PARAMS[: len(prompts)])]


@pytest.mark.parametrize("name", FAMILY_OF)
def test_replayed_and_plain_steps_agree(name, tiny_checkpoint, monkeypatch):
    """Batches shrink from three to one, and block tables outgrow a recording's."""
    prompts = FAMILY_OF[name].prompts(name)[:3]
    options = {"device": "cpu", "kv_cache_bytes": 1 << 22, "block_size": 4, "enable_prefix_caching": False}
    steps = []
    again = replay._Step.again
    monkeypatch.setattr(replay._Step, "again", lambda step, batch: steps.append(len(batch.seq_lens)) or again(step, batch))
    replayed = answers(LLM(tiny_checkpoint(name), **options), prompts)
    assert {1, 2, 3} <= set(steps)
    steps.clear()
    monkeypatch.setattr(replay, "MOST_SEQUENCES", 0)
    assert answers(LLM(tiny_checkpoint(name), **options), prompts) == replayed
    assert not steps


def test_a_step_that_is_looked_at_is_not_replayed(tiny_checkpoint):
    name = next(iter(FAMILY_OF))
    llm = LLM(tiny_checkpoint(name), device="cpu", kv_cache_bytes=1 << 22)
    prompt = FAMILY_OF[name].prompts(name)[0]
    plain = answers(llm, [prompt])
    logits = []
    with tap.collect(lambda key, array: logits.append(array.copy()) if key == "lm_head" else None):
        assert answers(llm, [prompt]) == plain
    assert len(logits) == len(plain[0][0])
    assert [int(row.argmax()) for row in np.concatenate(logits)] == plain[0][0]
