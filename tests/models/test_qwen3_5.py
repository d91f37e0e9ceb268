"""vtlite/models/qwen3_5.py: how its files are read, and what it refuses. Its answers: test_transformers.py."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import vtlite.cpu
import vtlite.reference
from tests.models.forward import forward
from tests.tiny_hybrids import HYBRIDS
from vtlite.checkpoint.weights import Weights
from vtlite.config import ModelConfig
from vtlite.errors import CheckpointError, ConfigError
from vtlite.models.registry import load_model

BF16 = np.dtype(ml_dtypes.bfloat16)


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
    prompt = HYBRIDS.prompts("qwen3_5")[1]
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
