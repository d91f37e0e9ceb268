"""vtlite/models/llama.py against transformers: every module of tiny checkpoints, and answers token for token.

Goldens: tests/golden/make_dense.py.
"""

import hashlib

import ml_dtypes
import numpy as np
import pytest

import vtlite.reference
from tests.models.forward import forward, relative_rms
from tests.models.goldens import WINGS, check_answers, each_wing, load_golden
from tests.tiny_checkpoints import CONFIGS, prompts
from vtlite import LLM

BF16 = np.dtype(ml_dtypes.bfloat16)
ROUNDING = 2.0**-8                       # largest relative error of rounding to bfloat16

tiny = pytest.mark.parametrize("name", CONFIGS)


@pytest.fixture(scope="module")
def golden():
    return load_golden("dense_tiny.npz")


@tiny
def test_the_checkpoint_is_the_one_the_golden_was_recorded_from(name, tiny_checkpoint, golden):
    weights = (tiny_checkpoint(name) / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == golden[f"{name}/sha256"]


@tiny
@each_wing
def test_every_module_gives_what_transformers_gives(name, device, tiny_checkpoint, golden):
    _, seen = forward(tiny_checkpoint(name), prompts(name)[-1], WINGS[device], np.float32)
    expected = {key.removeprefix(f"{name}/taps/"): value for key, value in golden.items() if key.startswith(f"{name}/taps/")}
    assert seen.keys() == expected.keys()
    for module, value in expected.items():
        np.testing.assert_allclose(seen[module][-1], value, rtol=0, atol=4e-6 * np.abs(value).max(), err_msg=module)


@tiny
@each_wing
def test_greedy_tokens_and_logprobs_are_those_of_transformers(name, device, tiny_checkpoint, golden):
    llm = LLM(tiny_checkpoint(name), device=device, kv_cache_bytes=1 << 23)
    check_answers(llm, prompts(name), golden, f"{name}/")


@tiny
def test_float64_differs_from_float32_by_float32_rounding(name, tiny_checkpoint):
    """The bound is twice what these checkpoints show: 11 to 24 times 2^-24, from some 20 roundings a layer."""
    exact, seen = forward(tiny_checkpoint(name), prompts(name)[-1], vtlite.reference, np.float64)
    single, _ = forward(tiny_checkpoint(name), prompts(name)[-1], vtlite.reference, np.float32)
    assert all(array.dtype == np.float64 for module, array in seen.items() if module != "lm_head")
    assert 0 < relative_rms(single, exact) < 50 * 2.0**-24


@tiny
def test_bfloat16_rounds_at_every_op_and_errs_less_than_transformers(name, tiny_checkpoint, golden):
    """It shows 2.6 to 5.1 times 2^-8 against 3.7 to 7.9, because projections, norms and rope round once."""
    exact, _ = forward(tiny_checkpoint(name), prompts(name)[-1], vtlite.reference, np.float64)
    rounded, seen = forward(tiny_checkpoint(name), prompts(name)[-1], vtlite.reference, BF16)
    assert all(array.dtype == BF16 for module, array in seen.items() if module != "lm_head")
    assert ROUNDING < relative_rms(rounded, exact) < golden[f"{name}/bfloat16_error"]
