"""The checkpoints inside the package: complete, small enough, and run as transformers runs them.

Goldens: tests/golden/make_bundled.py.
"""

import hashlib
import json

import numpy as np
import pytest

from tests.models.forward import forward
from tests.models.goldens import WINGS, check_answers, each_wing, load_golden
from vtlite import LLM
from vtlite.checkpoint.resolve import BUNDLED
from vtlite.checkpoint.tokenizer import Tokenizer

NAMES = ["tiny-hybrid", "tiny-mla", "tiny-dense"]
RUNS = ["tiny-hybrid", "tiny-dense"]     # the architectures that vtlite has so far

each = pytest.mark.parametrize("name", NAMES)


def golden(name: str) -> dict[str, np.ndarray]:
    return load_golden(f"bundled_{name.replace('-', '_')}.npz")


def size(directory) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@each
def test_the_files_are_those_the_golden_was_recorded_from(name):
    weights = (BUNDLED / name / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == json.loads(str(golden(name)["about"]))["sha256"]


@each
def test_the_tokenizer_is_shared_and_its_chat_tokens_stop_an_answer(name):
    assert (BUNDLED / name / "tokenizer.json").read_bytes() == (BUNDLED / NAMES[0] / "tokenizer.json").read_bytes()
    tokenizer = Tokenizer(BUNDLED / name)
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>") == [0, 1, 2]
    assert set(json.loads((BUNDLED / name / "generation_config.json").read_text())["eos_token_id"]) == {0, 2}
    text = "Once upon a time,\n\nthere were 12 cats: \u00e9\u4e2d\U0001f600"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_they_are_small():
    assert all(size(BUNDLED / name) <= 20e6 for name in NAMES)
    assert size(BUNDLED) < 50e6


@pytest.mark.parametrize("name", RUNS)
@each_wing
def test_tokens_and_logprobs_are_those_of_transformers(name, device):
    recorded = golden(name)
    llm = LLM(BUNDLED / name, device=device, kv_cache_bytes=1 << 26)
    check_answers(llm, [recorded[f"prompt_{i:02d}"].tolist() for i in range(8)], recorded)


@pytest.mark.parametrize("name", RUNS)
@each_wing
def test_logits_of_every_position_are_those_of_transformers(name, device):
    """The eight likeliest tokens of each position, and the whole row after the prompt, to 1e-5 of their size."""
    recorded = golden(name)
    for i in range(8):
        logits, _ = forward(BUNDLED / name, recorded[f"prompt_{i:02d}"].tolist(), WINGS[device], np.float32)
        top_ids, top_logits = recorded[f"top_ids_{i:02d}"], recorded[f"top_logits_{i:02d}"]
        scale = np.abs(top_logits).max()
        np.testing.assert_allclose(np.take_along_axis(logits, top_ids, 1), top_logits, rtol=0, atol=1e-5 * scale)
        np.testing.assert_allclose(logits[-1], recorded["last_logits"][i], rtol=0, atol=1e-5 * scale)
