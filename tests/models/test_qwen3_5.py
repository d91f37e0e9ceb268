"""vtlite/models/qwen3_5.py against transformers: every layer of tiny checkpoints, and answers token for token.

Goldens: tests/golden/make_dense.py. The bundled tiny-hybrid: tests/models/test_bundled.py.
"""

import hashlib
import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import vtlite.cpu
import vtlite.reference
from tests.models.forward import forward, relative_rms
from tests.models.goldens import WINGS, check_answers, each_wing, load_golden
from tests.tiny_hybrids import CONFIGS, prompts
from vtlite import LLM
from vtlite.checkpoint.weights import Weights
from vtlite.config import ModelConfig
from vtlite.errors import CheckpointError, ConfigError
from vtlite.models.registry import load_model

BF16 = np.dtype(ml_dtypes.bfloat16)
ROUNDING = 2.0**-8                       # largest relative error of rounding to bfloat16

tiny = pytest.mark.parametrize("name", CONFIGS)


@pytest.fixture(scope="module")
def golden():
    return load_golden("hybrid_tiny.npz")


@tiny
def test_the_checkpoint_is_the_one_the_golden_was_recorded_from(name, tiny_checkpoint, golden):
    weights = (tiny_checkpoint(name) / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == golden[f"{name}/sha256"]


@tiny
@each_wing
def test_every_module_gives_what_transformers_gives(name, device, tiny_checkpoint, golden):
    """127 tokens, two chunks of transformers' delta rule."""
    _, seen = forward(tiny_checkpoint(name), prompts(name)[-1], WINGS[device], np.float32)
    expected = {key.removeprefix(f"{name}/taps/"): value for key, value in golden.items() if key.startswith(f"{name}/taps/")}
    assert seen.keys() == expected.keys()
    for module, value in expected.items():
        np.testing.assert_allclose(seen[module][-1], value, rtol=0, atol=1e-5 * np.abs(value).max(), err_msg=module)


@tiny
@each_wing
def test_greedy_tokens_and_logprobs_are_those_of_transformers(name, device, tiny_checkpoint, golden):
    llm = LLM(tiny_checkpoint(name), device=device, kv_cache_bytes=1 << 23)
    check_answers(llm, prompts(name), golden, f"{name}/")


@tiny
def test_float64_differs_from_float32_by_float32_rounding(name, tiny_checkpoint):
    exact, seen = forward(tiny_checkpoint(name), prompts(name)[-1], vtlite.reference, np.float64)
    single, _ = forward(tiny_checkpoint(name), prompts(name)[-1], vtlite.reference, np.float32)
    assert all(array.dtype == np.float64 for module, array in seen.items() if module != "lm_head")
    assert 0 < relative_rms(single, exact) < 50 * 2.0**-24


@tiny
def test_bfloat16_rounds_at_every_op_and_errs_less_than_transformers(name, tiny_checkpoint, golden):
    exact, _ = forward(tiny_checkpoint(name), prompts(name)[-1], vtlite.reference, np.float64)
    rounded, seen = forward(tiny_checkpoint(name), prompts(name)[-1], vtlite.reference, BF16)
    assert all(array.dtype == BF16 for module, array in seen.items() if module != "lm_head")
    assert ROUNDING < relative_rms(rounded, exact) < golden[f"{name}/bfloat16_error"]


def test_a_multimodal_file_is_its_text_model(tiny_checkpoint, tmp_path, caplog):
    """config.json nested in text_config, names under model.language_model., an image encoder and a draft head beside them."""
    source = tiny_checkpoint("qwen3_5")
    text = json.loads((source / "config.json").read_text())
    outer = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": False,
             "vision_config": {"depth": 1}, "text_config": {k: v for k, v in text.items() if k != "architectures"}}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    tensors = {k.replace("model.", "model.language_model."): v for k, v in load_file(source / "model.safetensors").items()}
    tensors |= {"model.visual.patch_embed.proj.weight": np.zeros(3, BF16), "mtp.norm.weight": np.zeros(3, BF16)}
    save_file(tensors, tmp_path / "model.safetensors")
    prompt = prompts("qwen3_5")[1]
    with caplog.at_level("INFO", "vtlite.models"):
        logits, _ = forward(tmp_path, prompt, vtlite.cpu, np.float32)
    assert np.array_equal(logits, forward(source, prompt, vtlite.cpu, np.float32)[0])
    assert [record.message.endswith("2 tensors of the image encoder and the draft head are not read")
            for record in caplog.records] == [True]


@pytest.mark.parametrize("changes, found", [
    ({"num_experts": 8}, "'num_experts' is 8, which is not implemented"),
    ({"attn_output_gate": False}, "'attn_output_gate' is False, which is not implemented"),
    ({"output_gate_type": "sigmoid"}, "'output_gate_type' is 'sigmoid', which is not implemented .*'swish'"),
    ({"mamba_ssm_dtype": "bfloat16"}, "'mamba_ssm_dtype' is 'bfloat16', which is not implemented"),
    ({"attention_bias": True}, "'attention_bias' is True, which is not implemented"),
    ({"linear_num_value_heads": 3}, "linear_num_value_heads 3 should be a multiple of linear_num_key_heads 2"),
    ({"num_key_value_heads": 3}, "num_attention_heads 4 should be a multiple of num_key_value_heads 3"),
    ({"linear_conv_kernel_dim": None}, "'linear_conv_kernel_dim' is missing"),
    ({"layer_types": ["full_attention"]}, "'layer_types' should hold 4 of linear_attention and full_attention, found 1"),
    ({"layer_types": ["mamba"] * 4}, r"found 4 with \['mamba'\]"),
    ({"layer_types": ["linear_attention"] * 4}, "none of the 4 layers is a full_attention layer"),
    ({"rope_parameters": {"partial_rotary_factor": 0.1}}, "'partial_rotary_factor' 0.1 of head_dim 32 should .*found 3"),
])
def test_what_is_not_understood_is_refused_by_name(changes, found, tiny_checkpoint):
    with pytest.raises(ConfigError, match=found):
        load(tiny_checkpoint("qwen3_5"), changes)


def test_fused_projections_are_not_taken_for_separate_ones(tiny_checkpoint):
    with pytest.raises(CheckpointError, match="'model.layers.0.linear_attn.in_proj_qkvz.weight' .*is missing"):
        load(tiny_checkpoint("qwen3_5"), {"architectures": ["Qwen3NextForCausalLM"]})


def load(directory, changes):
    config = ModelConfig.read(directory)
    config.raw.update(changes)
    return load_model(config, Weights(directory), vtlite.reference, np.dtype(np.float32))
