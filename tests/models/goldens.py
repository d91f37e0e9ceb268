"""What transformers answered (tests/golden/make_dense.py), and how an engine's answers are held against it."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import vtlite.cpu
import vtlite.reference
from vtlite import LLM, SamplingParams

GOLDEN = Path(__file__).parents[1] / "golden"
WINGS = {"reference": vtlite.reference, "cpu": vtlite.cpu}

each_wing = pytest.mark.parametrize("device", WINGS)


@cache
def load_golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name) as file:
        return dict(file)


def check_answers(llm: LLM, token_id_prompts: list[list[int]], golden: dict, atol: float = 1e-4) -> None:
    """One batch, every token equal, every logprob within `atol`."""
    tokens, logprobs, margins = (golden[key] for key in ("tokens", "logprobs", "margins"))
    params = SamplingParams(temperature=0, max_tokens=tokens.shape[1], ignore_eos=True, logprobs=0)
    answers = [output.outputs[0] for output in llm.generate(token_id_prompts, params)]
    found = np.array([answer.token_ids for answer in answers])
    different = [f"prompt {p} token {t}: {found[p, t]}, transformers {tokens[p, t]} which led by {margins[p, t]:.2g}"
                 for p, t in enumerate((found != tokens).argmax(axis=1)) if found[p, t] != tokens[p, t]]
    assert not different, "; ".join(different)
    found_logprobs = [[at[token].logprob for at, token in zip(a.logprobs, a.token_ids)] for a in answers]
    np.testing.assert_allclose(found_logprobs, logprobs, rtol=0, atol=atol)


def check_scores(llm: LLM, token_id_prompts: list[list[int]], golden: dict) -> None:
    """The same promise by another way: after the golden tokens before it, every golden token is the likeliest. A pass over
    each whole text, many tokens at once, in place of a step for each token."""
    texts = [prompt + tokens.tolist() for prompt, tokens in zip(token_id_prompts, golden["tokens"])]
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    for p, output in enumerate(llm.generate(texts, params)):
        first = len(token_id_prompts[p])
        found = [at[token] for at, token in zip(output.prompt_logprobs[first:], texts[p][first:], strict=True)]
        different = [f"prompt {p} token {t}: {texts[p][first + t]} has rank {at.rank}, for transformers it led by "
                     f"{golden['margins'][p, t]:.2g}" for t, at in enumerate(found) if at.rank != 1]
        assert not different, different[0]
        np.testing.assert_allclose([at.logprob for at in found], golden["logprobs"][p], rtol=0, atol=1e-4)
