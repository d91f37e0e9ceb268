"""vtlite/checkpoint/gguf.py: a GGUF becomes a checkpoint that says the same, or is refused and leaves nothing."""

import json

import gguf
import ml_dtypes
import numpy as np
import pytest

from tests.tiny_gguf import HEAD_DIM, HEADS, HIDDEN, INTER, KV_HEADS, LAYERS, TEMPLATE, TOKENS, tensors, write
from vtlite.checkpoint import gguf as importer
from vtlite.checkpoint.chat_template import ChatTemplate
from vtlite.checkpoint.gguf import convert
from vtlite.checkpoint.tokenizer import Tokenizer
from vtlite.checkpoint.weights import Weights
from vtlite.config import ModelConfig
from vtlite.errors import CheckpointError
from vtlite.models.llama import LlamaConfig

PER_LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
             "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


def hf_names(arrays):
    """The same arrays under the names that transformers gives them."""
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    for i in range(LAYERS):
        for hf, source in PER_LAYER.items():
            for kind in ("weight", "bias"):
                names[f"blk.{i}.{source}.{kind}"] = f"model.layers.{i}.{hf}.{kind}"
    return {names[name]: array for name, array in arrays.items()}


def divisors(factor=32.0):
    """What llama.cpp stores for llama3 rope scaling, written as the paper's three cases."""
    out = []
    for j in range(HEAD_DIM // 2):
        wavelength = 2 * np.pi * 500000.0 ** (2 * j / HEAD_DIM)
        if wavelength < 8192 / 4:
            out.append(1.0)
        elif wavelength > 8192:
            out.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / 3
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, np.float32)


@pytest.mark.parametrize("arch, tied", [("llama", True), ("qwen2", False), ("qwen3", True)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_tensor_arrives_under_its_name_in_half_split_order(tmp_path, arch, tied, dtype):
    arrays = tensors(arch, tied)
    out = convert(write(tmp_path / "m.gguf", arch, arrays), tmp_path / "out", dtype)
    weights, numpy_dtype = Weights(out), {"bfloat16": ml_dtypes.bfloat16, "float32": np.float32}[dtype]
    for name, array in hf_names(arrays).items():
        np.testing.assert_array_equal(weights.take(name, array.shape), array.astype(numpy_dtype), err_msg=name)
    weights.finish()


def test_blocks_are_dequantised_and_rounded_once(tmp_path):
    arrays, name = tensors("llama"), "blk.0.ffn_down.weight"
    out = convert(write(tmp_path / "m.gguf", "llama", arrays, quantised=[name]), tmp_path / "out")
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    expected = gguf.quants.dequantize(gguf.quants.quantize(arrays[name], q8_0), q8_0).astype(ml_dtypes.bfloat16)
    found = Weights(out).take("model.layers.0.mlp.down_proj.weight", (HIDDEN, INTER))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_the_config_is_one_that_the_model_reads(tmp_path, arch):
    out = convert(write(tmp_path / "m.gguf", arch), tmp_path / "out")
    config = ModelConfig.read(out)
    model = LlamaConfig(config)
    assert (model.hidden_size, model.intermediate_size, model.num_layers) == (HIDDEN, INTER, LAYERS)
    assert (model.num_heads, model.num_kv_heads, model.head_dim) == (HEADS, KV_HEADS, HEAD_DIM)
    assert (model.rms_norm_eps, config.rope["rope_theta"], config.vocab_size) == (1e-5, 500000.0, len(TOKENS))
    assert model.tie_word_embeddings and config.eos_token_ids == (2,) and config.max_position_embeddings == 512
    assert (model.qk_norm, model.qkv_bias) == (arch == "qwen3", arch == "qwen2")


def test_rope_freqs_become_llama3_rope_scaling(tmp_path):
    arrays = tensors("llama") | {"rope_freqs.weight": divisors(32.0)}
    out = convert(write(tmp_path / "m.gguf", "llama", arrays), tmp_path / "out")
    assert ModelConfig.read(out).rope == {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0}


def test_linear_rope_scaling_is_kept(tmp_path):
    extra = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    out = convert(write(tmp_path / "m.gguf", extra=extra), tmp_path / "out")
    assert ModelConfig.read(out).rope == {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0}


def test_two_ends_of_answer_are_both_kept(tmp_path):
    out = convert(write(tmp_path / "m.gguf", extra={"tokenizer.ggml.eot_token_id": 0}), tmp_path / "out")
    assert ModelConfig.read(out).eos_token_ids == (0, 2)


def test_tokenizer_and_template_arrive(tmp_path):
    out = convert(write(tmp_path / "m.gguf"), tmp_path / "out")
    tokenizer = Tokenizer(out)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_start|>", "<|im_end|>", 2)
    assert ChatTemplate(out).render([{"content": "Hi"}]) == "<|im_start|>Hi<|im_end|>"
    assert json.loads((out / "tokenizer_config.json").read_text())["chat_template"] == TEMPLATE


def test_progress_counts_tensors(tmp_path):
    seen = []
    convert(write(tmp_path / "m.gguf"), tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i + 1, 20) for i in range(20)]


def changed(**arrays):
    return tensors("llama") | arrays


REFUSED = {
    "architecture": (dict(arch="gemma3", arrays={}), r"architecture 'gemma3' is not implemented.*llama, qwen2, qwen3"),
    "setting": (dict(extra={"llama.expert_count": 8}), "not implemented: llama.expert_count = 8"),
    "yarn": (dict(extra={"llama.rope.scaling.type": "yarn"}), "'yarn'; implemented: none, linear, llama3"),
    "partial rope": (dict(extra={"llama.rope.dimension_count": 8}), "'llama.rope.dimension_count' is 8, only.*16"),
    "odd heads": (dict(extra={"llama.attention.key_length": 15}), "should be even.*found 15"),
    "wrong type": (dict(extra={"general.alignment": 32, "llama.attention.key_length": "x"}), "should be int, found 'x'"),
    "unexpected tensor": (dict(arrays=changed(**{"blk.0.attn_q.bias": np.ones(64, np.float32)})),
                          "1 tensors that a llama model does not have: blk.0.attn_q.bias"),
    "wrong shape": (dict(arrays=changed(**{"blk.1.ffn_up.weight": np.ones((64, 96), np.float32)})),
                    r"'blk.1.ffn_up.weight': expected shape \[96, 64\] from the metadata, found \[64, 96\]"),
    "missing tensor": (dict(arrays={n: a for n, a in changed(x=np.ones(1, np.float32)).items() if "0.attn_k" not in n}),
                       r"tensor 'blk.0.attn_k.weight' of shape \[32, 64\] is missing"),
    "missing blocks": (dict(arrays={"token_embd.weight": np.ones((8, 64), np.float32)}),
                       "2 blocks of 9 tensors are announced, but the file has 1 tensors"),
    "integers": (dict(arrays=changed(**{"output_norm.weight": np.ones(64, np.int32)})), "ggml type 26"),
    "rope freqs": (dict(arrays=changed(**{"rope_freqs.weight": divisors() * np.float32(1.5)})), "not a llama3 rope"),
    "rope freqs shape": (dict(arrays=changed(**{"rope_freqs.weight": divisors()[:4]})), r"expected shape \[8\]"),
    "tokenizer": (dict(model="bert"), "tokenizer.ggml.model is 'bert'; implemented: 'gpt2'"),
    "eos": (dict(extra={"tokenizer.ggml.add_eos_token": True}), "add_eos_token is set"),
    "pre-tokenizer": (dict(pre="viking"), "tokenizer.ggml.pre is 'viking', which is not implemented.*smollm"),
    "no pre-tokenizer": (dict(pre=None), "tokenizer.ggml.pre is 'absent'"),
    "merge": (dict(merges=["t h", "t e"]), "merge 't e' does not join two tokens"),
    "twice": (dict(tokens=[*TOKENS[:-1], "t"]), "the same token twice"),
    "token id": (dict(extra={"tokenizer.ggml.eot_token_id": 9999}), r"eot_token_id is 9999, but there are \d+ tokens"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_implemented_is_refused_and_leaves_nothing(tmp_path, case):
    options, found = REFUSED[case]
    path = write(tmp_path / "m.gguf", **options)
    with pytest.raises(CheckpointError, match=found) as caught:
        convert(path, tmp_path / "out")
    assert str(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_import_leaves_nothing(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    path = write(tmp_path / "m.gguf")
    with pytest.raises(KeyboardInterrupt):
        convert(path, tmp_path / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_directory_is_never_overwritten(tmp_path):
    path = write(tmp_path / "m.gguf")
    (tmp_path / "out").mkdir()
    convert(path, tmp_path / "out")
    before = (tmp_path / "out" / "config.json").read_bytes()
    with pytest.raises(CheckpointError, match="already exists"):
        convert(path, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").read_bytes() == before


def test_the_race_of_two_imports_is_won_by_one_and_told_to_the_other(tmp_path):
    path = write(tmp_path / "m.gguf")

    def rival(done, total):
        if done == 1:
            convert(path, tmp_path / "out")

    with pytest.raises(CheckpointError, match="out: cannot be written"):
        convert(path, tmp_path / "out", progress=rival)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.gguf", "out"]
    assert len(Weights(tmp_path / "out").names) == 20


def test_an_unknown_dtype_and_an_unwritable_place_are_named(tmp_path):
    path = write(tmp_path / "m.gguf")
    with pytest.raises(CheckpointError, match="dtype should be one of bfloat16, float32, found 'int4'"):
        convert(path, tmp_path / "out", "int4")
    with pytest.raises(CheckpointError, match="cannot be written"):
        convert(path, path / "out")


def test_interleaved_rows_of_each_head_are_put_back_in_two_halves():
    rows = np.array([[0], [2], [1], [3], [10], [12], [11], [13]])   # two heads of a0 b0 a1 b1, named 0 2 1 3
    assert importer.half_split_rows(rows, 2).ravel().tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
