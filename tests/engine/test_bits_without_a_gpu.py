"""What whole models gave on an H200, every operation, tap, id and logprob, comes out again without a GPU, bit for bit.

Goldens: bench/record_model.py. Weights and kernels' arithmetic (`--device sm_90`) are this machine's, everything else the file's.
"""

from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from bench.record_model import record
from vtlite import LLM

GOLDEN = Path(__file__).parents[1] / "golden"
PROMPT_TOKENS, NEW_TOKENS = 70, 9                # 8 decode steps


def first_difference(found: dict, recorded: dict) -> str | None:
    """Where the first operation lies whose result differs."""
    for step in range(NEW_TOKENS):
        tapped = "the step's beginning"
        for ours, theirs in zip_longest(found[f"ops_{step}"], recorded[f"ops_{step}"], fillvalue="nothing"):
            if ours != theirs:
                return f"step {step}, after {tapped}: {theirs} on the GPU, {ours} here"
            tapped = theirs.split()[0] if theirs.startswith(("model.", "lm_head")) else tapped
    return None


@pytest.mark.parametrize("model, file", [("tiny-dense", "model_h200.npz"), ("tiny-hybrid", "model_hybrid_h200.npz")])
def test_a_prompt_and_its_answer_have_the_bits_of_a_gpu(model, file):
    with np.load(GOLDEN / file) as arrays:
        recorded = dict(arrays)
    llm = LLM(model, device="sm_90", max_model_len=256, num_blocks=33, enable_prefix_caching=False)
    prompt = recorded["token_ids"][:PROMPT_TOKENS].tolist()
    assert len(recorded["token_ids"]) == PROMPT_TOKENS + NEW_TOKENS
    found = record(llm, prompt, NEW_TOKENS)
    assert (difference := first_difference(found, recorded)) is None, difference
    assert found.keys() == recorded.keys()
    for name, expected in recorded.items():
        assert found[name].dtype == expected.dtype and found[name].tobytes() == expected.tobytes(), name
