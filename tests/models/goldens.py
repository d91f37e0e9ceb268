"""What transformers answered (tests/golden/make_dense.py), and how an engine's answers are held against it."""

from pathlib import Path

import numpy as np
import pytest

import vtlite.cpu
import vtlite.reference
from vtlite import LLM, SamplingParams

GOLDEN = Path(__file__).parents[1] / "golden"
WINGS = {"reference": vtlite.reference, "cpu": vtlite.cpu}

each_wing = pytest.mark.parametrize("device", WINGS)


def load_golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / name) as file:
        return dict(file)


def check_answers(llm: LLM, token_id_prompts: list[list[int]], golden: dict, prefix: str = "") -> None:
    """One batch, every token equal, every logprob within 1e-4."""
    tokens, logprobs, margins = (golden[prefix + key] for key in ("tokens", "logprobs", "margins"))
    params = SamplingParams(temperature=0, max_tokens=tokens.shape[1], ignore_eos=True, logprobs=0)
    answers = [output.outputs[0] for output in llm.generate(token_id_prompts, params)]
    found = np.array([answer.token_ids for answer in answers])
    different = [f"prompt {p} token {t}: {found[p, t]}, transformers {tokens[p, t]} which led by {margins[p, t]:.2g}"
                 for p, t in enumerate((found != tokens).argmax(axis=1)) if found[p, t] != tokens[p, t]]
    assert not different, "; ".join(different)
    found_logprobs = [[at[token].logprob for at, token in zip(a.logprobs, a.token_ids)] for a in answers]
    np.testing.assert_allclose(found_logprobs, logprobs, rtol=0, atol=1e-4)
