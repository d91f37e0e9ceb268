"""vtlite/models/registry.py and the checks of the model files: what is not understood is refused by name."""

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import vtlite.reference
from vtlite.checkpoint.weights import Weights
from vtlite.config import ModelConfig
from vtlite.errors import CheckpointError, ConfigError
from vtlite.models.registry import load_model


def load(directory, **changes):
    config = ModelConfig.read(directory)
    config.raw.update(changes)
    return load_model(config, Weights(directory), vtlite.reference, np.dtype(np.float32))


def copy(source, directory, edit):
    """The checkpoint `source` again in `directory`, its dict of tensors passed through `edit`."""
    tensors = load_file(source / "model.safetensors")
    edit(tensors)
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text((source / "config.json").read_text())
    return directory


@pytest.mark.parametrize("changes, found", [
    ({"architectures": ["GPT2LMHeadModel"]}, "architecture 'GPT2LMHeadModel' is not implemented .*LlamaForCausalLM, Mistral"),
    ({"architectures": None}, "'architectures' is missing"),
    ({"architectures": []}, r"'architectures' should name one class, found \[\]"),
    ({"architectures": "LlamaForCausalLM"}, "'architectures' should be list, found 'LlamaForCausalLM'"),
    ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu', which is not implemented .*'silu'"),
    ({"quantization_config": {"quant_method": "fp8"}}, "'quantization_config' is {'quant_method': 'fp8'}, which is not"),
    ({"partial_rotary_factor": 0.5}, "'partial_rotary_factor' is 0.5, which is not implemented"),
    ({"pretraining_tp": 2}, "'pretraining_tp' is 2, which is not implemented"),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope scaling 'yarn' is not implemented"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope scaling 'dynamic' is not implemented"),
    ({"rope_scaling": "linear"}, "'rope_scaling' should be dict, found 'linear'"),
    ({"hidden_size": "64"}, "'hidden_size' should be int, found '64'"),
    ({"hidden_size": True}, "'hidden_size' should be int, found True"),
    ({"num_hidden_layers": 0}, "'num_hidden_layers' should be at least 1, found 0"),
    ({"rms_norm_eps": None}, "'rms_norm_eps' is missing"),
    ({"num_key_value_heads": 4}, "num_attention_heads 6 should be a multiple of num_key_value_heads 4"),
    ({"head_dim": 13}, "head_dim should be even, found 13"),
    ({"tie_word_embeddings": "no"}, "'tie_word_embeddings' should be bool, found 'no'"),
    ({"layer_types": ["full_attention"]}, "'layer_types' should hold 2 of .*, found 1"),
    ({"layer_types": ["full_attention", "linear_attention"]}, "'layer_types' should hold 2 of .*linear_attention"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention but 'sliding_window' is not set"),
])
def test_a_config_that_asks_for_what_is_not_implemented_names_file_field_and_value(changes, found, tiny_checkpoint):
    directory = tiny_checkpoint("llama_biases")
    with pytest.raises(ConfigError, match=found) as caught:
        load(directory, **changes)
    assert str(directory / "config.json") in str(caught.value)


@pytest.mark.parametrize("changes", [
    {"hidden_act": None}, {"partial_rotary_factor": 1.0}, {"quantization_config": None},
    {"rope_scaling": {"rope_type": "default"}}, {"a_field_of_another_library": 1}, {"layer_types": ["full_attention"] * 2},
])
def test_fields_that_change_nothing_are_accepted(changes, tiny_checkpoint):
    load(tiny_checkpoint("llama_biases"), **changes)


@pytest.mark.parametrize("name, changes, found", [
    ("qwen3", {"intermediate_size": 96},
     r"model.safetensors: tensor 'model.layers.0.mlp.gate_proj.weight': expected shape \[96, 72\] .*found \[100, 72\]"),
    ("qwen3", {"head_dim": None}, r"'model.layers.0.self_attn.q_proj.weight': expected shape \[72, 72\] .*found \[120, 72\]"),
    ("qwen3", {"num_hidden_layers": 2}, "does not use 11 of the checkpoint's 36 tensors: model.layers.2"),
    ("qwen3", {"num_hidden_layers": 4}, "tensor 'model.layers.3.input_layernorm.weight' .*is missing"),
    ("qwen3", {"architectures": ["LlamaForCausalLM"]}, "does not use 6 of .*q_norm"),
    ("qwen2", {"architectures": ["LlamaForCausalLM"]}, "does not use 6 of .*bias"),
    ("qwen2", {"tie_word_embeddings": False}, "tensor 'lm_head.weight' .*is missing"),
    ("llama_biases", {"attention_bias": False}, "does not use 8 of .*bias"),
    ("llama_linear_rope", {"mlp_bias": True}, "tensor 'model.layers.0.mlp.gate_proj.bias' .*is missing"),
])
def test_weights_that_contradict_the_config_name_file_and_tensor(name, changes, found, tiny_checkpoint):
    with pytest.raises(CheckpointError, match=found):
        load(tiny_checkpoint(name), **changes)


def test_a_tensor_the_model_has_no_place_for_is_named(tiny_checkpoint, tmp_path):
    extra = {"model.layers.0.self_attn.sinks": np.zeros(3, ml_dtypes.bfloat16)}
    directory = copy(tiny_checkpoint("qwen3"), tmp_path, lambda tensors: tensors.update(extra))
    with pytest.raises(CheckpointError, match=r"does not use 1 of .*: model.layers.0.self_attn.sinks \[3\]"):
        load(directory)


def test_stored_frequencies_and_a_stored_copy_of_a_tied_head_are_not_needed(tiny_checkpoint, tmp_path):
    def edit(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(5, np.float32)

    load(copy(tiny_checkpoint("qwen2"), tmp_path, edit))
