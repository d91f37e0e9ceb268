"""Dummy weights: a config.json is enough for a model, the same one everywhere."""

import json
import shutil

import numpy as np

from vtlite import LLM, SamplingParams, reference
from vtlite.checkpoint.dummy import DummyWeights


def test_a_model_runs_from_its_config_alone_and_answers_alike_everywhere(tiny_checkpoint, tmp_path):
    shutil.copy(tiny_checkpoint("qwen3") / "config.json", tmp_path)
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, logprobs=0)
    answers = [LLM(tmp_path, device=device, load_format="dummy", num_blocks=8).generate([1, 2, 3], params)[0].outputs[0]
               for device in ("cpu", "reference")]
    assert answers[0].token_ids == answers[1].token_ids and len(answers[0].token_ids) == 5
    assert answers[0].text == ""                                       # there is no tokenizer


def test_a_hybrid_runs_from_its_config_alone(tiny_checkpoint, tmp_path):
    config = json.loads((tiny_checkpoint("qwen3_5") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    llm = LLM(tmp_path, device="cpu", load_format="dummy", num_blocks=8)
    assert len(llm.generate([1, 2, 3], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))[0].outputs[0].token_ids) == 3


def test_tensors_differ_and_keep_the_scale_of_what_they_are_applied_to():
    weights = DummyWeights(reference.uniform, reference.uniform)
    a, b = weights.take("a", (64, 256)), weights.take("b", (64, 256))
    assert (a != b).any() and (a == weights.take("a", (64, 256))).all()
    assert abs(a.astype(np.float64).std() * 256**0.5 - 1) < 0.05
    assert abs(weights.take("norm", (512,), np.float32).mean() - 1) < 0.05
    assert weights.take_stacked(["q", "k"], [(4, 8), (2, 8)]).shape == (6, 8)
