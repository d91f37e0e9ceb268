"""Every architecture against transformers: each module of tiny checkpoints, and answers token for token.

Goldens: tests/golden/make_dense.py.
"""

import hashlib

import ml_dtypes
import numpy as np
import pytest

import vtlite.reference
from tests.models.forward import forward, relative_rms
from tests.models.goldens import WINGS, check_answers, each_wing, load_golden
from tests.tiny_families import FAMILY_OF
from vtlite import LLM

BF16 = np.dtype(ml_dtypes.bfloat16)
ROUNDING = 2.0**-8                       # largest relative error of rounding to bfloat16
TOLERANCE = {"dense": 4e-6, "hybrid": 1e-5}             # of a module's float32 output, relative to its largest value

tiny = pytest.mark.parametrize("name", FAMILY_OF)


def golden(name):
    """What was recorded of the tiny checkpoint `name`, by key."""
    prefix = f"{name}/"
    recorded = load_golden(f"{FAMILY_OF[name].name}_tiny.npz")
    return {key.removeprefix(prefix): value for key, value in recorded.items() if key.startswith(prefix)}


def longest_prompt(name):
    return FAMILY_OF[name].prompts(name)[-1]


@tiny
def test_the_checkpoint_is_the_one_the_golden_was_recorded_from(name, tiny_checkpoint):
    weights = (tiny_checkpoint(name) / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == golden(name)["sha256"]


@tiny
@each_wing
def test_every_module_gives_what_transformers_gives(name, device, tiny_checkpoint):
    """After the longest prompt; of a hybrid that is 127 tokens, two chunks of transformers' delta rule."""
    _, seen = forward(tiny_checkpoint(name), longest_prompt(name), WINGS[device], np.float32)
    expected = {key.removeprefix("taps/"): value for key, value in golden(name).items() if key.startswith("taps/")}
    assert seen.keys() == expected.keys()
    tolerance = TOLERANCE[FAMILY_OF[name].name]
    for module, value in expected.items():
        np.testing.assert_allclose(seen[module][-1], value, rtol=0, atol=tolerance * np.abs(value).max(), err_msg=module)


@tiny
@each_wing
def test_greedy_tokens_and_logprobs_are_those_of_transformers(name, device, tiny_checkpoint):
    llm = LLM(tiny_checkpoint(name), device=device, kv_cache_bytes=1 << 23)
    check_answers(llm, FAMILY_OF[name].prompts(name), golden(name))


@tiny
def test_float64_differs_from_float32_by_float32_rounding(name, tiny_checkpoint):
    """The bound is twice what the dense checkpoints show: 11 to 24 times 2^-24, from some 20 roundings a layer."""
    exact, seen = forward(tiny_checkpoint(name), longest_prompt(name), vtlite.reference, np.float64)
    single, _ = forward(tiny_checkpoint(name), longest_prompt(name), vtlite.reference, np.float32)
    assert all(array.dtype == np.float64 for module, array in seen.items() if module != "lm_head")
    assert 0 < relative_rms(single, exact) < 50 * 2.0**-24


@tiny
def test_bfloat16_rounds_at_every_op_and_errs_less_than_transformers(name, tiny_checkpoint):
    """The dense ones show 2.6 to 5.1 times 2^-8 against 3.7 to 7.9, because projections, norms and rope round once."""
    exact, _ = forward(tiny_checkpoint(name), longest_prompt(name), vtlite.reference, np.float64)
    rounded, seen = forward(tiny_checkpoint(name), longest_prompt(name), vtlite.reference, BF16)
    assert all(array.dtype == BF16 for module, array in seen.items() if module != "lm_head")
    assert ROUNDING < relative_rms(rounded, exact) < golden(name)["bfloat16_error"]
