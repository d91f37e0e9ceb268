"""SmolLM2-135M against transformers: 20 prompts, 64 greedy tokens each, all exact.

Goldens: tests/golden/make_dense.py. The model is fetched into the user's cache on first use.
"""

import json

import pytest

from tests.models.goldens import GOLDEN, check_answers, check_scores, load_golden
from vtlite import LLM
from vtlite.checkpoint.resolve import resolve

PROMPTS = json.loads((GOLDEN / "smollm2_prompts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("device, check", [("cpu", check_answers), ("reference", check_scores)])
def test_tokens_and_logprobs_are_those_of_transformers(device, check):
    """On the CPU wing in one batch, token after token; by the definition, which takes a second for each step, at once."""
    golden = load_golden("smollm2.npz")
    llm = LLM(resolve("smollm2"), device=device, kv_cache_bytes=1 << 28)
    token_ids = [golden[f"prompt_{i:02d}"].tolist() for i in range(len(PROMPTS))]
    encoded = [llm.tokenizer.encode(prompt) if isinstance(prompt, str)
               else llm.tokenizer.encode(llm.render(prompt), add_special_tokens=False) for prompt in PROMPTS]
    assert encoded == token_ids
    check(llm, token_ids, golden)
