"""Tiny random checkpoints, one for each thing that the dense architectures can ask of a model.

`build(name, directory)` writes a Hugging Face directory (config.json, model.safetensors in bfloat16, a byte-level
tokenizer) whose bytes depend on the table below alone, so that goldens recorded from it elsewhere hold anywhere.
Scales are chosen so that attention is far from uniform, every layer matters and the best logit leads by a margin.
"""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

EOS, VOCAB_SIZE = 256, 300      # ids 0-255 are the bytes; those above 256 are rows that no text encodes to
PROMPT_LENGTHS = (1, 13, 40)

_COMMON = {
    "attention_dropout": 0.0, "bos_token_id": EOS, "eos_token_id": EOS, "hidden_act": "silu", "initializer_range": 0.02,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": VOCAB_SIZE,
}
_LLAMA = _COMMON | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5, "pretraining_tp": 1}
_MISTRAL = _COMMON | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "rms_norm_eps": 1e-5}
_QWEN2 = _COMMON | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rms_norm_eps": 1e-6}
_QWEN3 = _COMMON | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6}

CONFIGS: dict[str, dict] = {
    "llama3_rope": _LLAMA | {         # 4 query heads per KV head, tied; wavelengths on both sides of the scaled band and in it
        "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 16, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True, "rope_theta": 500000.0,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64, "rope_type": "llama3"}},
    "llama_biases": _LLAMA | {        # every bias, as many KV heads as heads (the key is absent), odd sizes
        "hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 6,
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False, "rope_theta": 10000.0,
        "rope_scaling": None},
    "llama_linear_rope": _LLAMA | {   # older spelling of the scaling type, heads wider than hidden / heads
        "hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 20, "tie_word_embeddings": False, "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0}},
    "mistral_window": _MISTRAL | {    # a window on every layer, shorter than two of the prompts
        "hidden_size": 96, "intermediate_size": 132, "num_hidden_layers": 3, "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": None, "sliding_window": 8, "tie_word_embeddings": False,
        "rope_theta": 10000.0},
    "qwen2": _QWEN2 | {               # biases that no key announces; a window that is present but not in use
        "hidden_size": 80, "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 2, "use_sliding_window": False, "sliding_window": 4, "max_window_layers": 0,
        "tie_word_embeddings": True, "rope_theta": 1000000.0},
    "qwen2_window": _QWEN2 | {        # full attention below max_window_layers, a window above
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2,
        "tie_word_embeddings": False, "rope_theta": 1000000.0},
    "qwen3": _QWEN3 | {               # QK-norm, heads wider than hidden / heads, untied
        "hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 20, "attention_bias": False, "use_sliding_window": False,
        "sliding_window": None, "max_window_layers": 3, "tie_word_embeddings": False, "rope_theta": 1000000.0,
        "rope_scaling": None},
    "qwen3_layer_types": _QWEN3 | {   # newer spellings, a kind for each layer, biases of attention, tied
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 4, "head_dim": 24, "attention_bias": True, "use_sliding_window": True,
        "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "tie_word_embeddings": True, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}},
}


def build(name: str, directory: Path) -> Path:
    """Write the checkpoint CONFIGS[name] into `directory`, which is made if need be; returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIGS[name], indent=2) + "\n")
    (directory / "generation_config.json").write_text(json.dumps({"bos_token_id": EOS, "eos_token_id": EOS}) + "\n")
    save_file(tensors(name), directory / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(directory)
    return directory


def prompts(name: str) -> list[list[int]]:
    """Three prompts of token ids, of PROMPT_LENGTHS."""
    rng = np.random.Generator(np.random.PCG64(1000 + list(CONFIGS).index(name)))
    return [rng.integers(0, VOCAB_SIZE, length).tolist() for length in PROMPT_LENGTHS]


def tensors(name: str) -> dict[str, np.ndarray]:
    """The bfloat16 tensors of CONFIGS[name], drawn one after another in the order of `_shapes`."""
    rng = np.random.Generator(np.random.PCG64(list(CONFIGS).index(name)))

    def draw(tensor: str, shape: tuple[int, ...]) -> np.ndarray:
        noise = rng.standard_normal(shape, dtype=np.float32)
        if tensor.endswith("norm.weight"):
            values = np.float32(1) + np.float32(0.2) * noise
        elif len(shape) == 1:
            values = np.float32(0.3) * noise
        else:
            values = np.float32(_gain(tensor) / shape[1] ** 0.5) * noise
        return values.astype(ml_dtypes.bfloat16)

    return {tensor: draw(tensor, shape) for tensor, shape in _shapes(CONFIGS[name]).items()}


def _gain(tensor: str) -> float:
    """Standard deviation of a projection's output for a normalised input."""
    if "q_proj" in tensor or "k_proj" in tensor:
        return 1.6
    return 3.0 if "embed_tokens" in tensor or "lm_head" in tensor else 1.5


def _shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint and its shape."""
    hidden, inter, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    q_size, kv_size = heads * head_dim, config.get("num_key_value_heads", heads) * head_dim
    family = config["model_type"]
    attention_bias = config.get("attention_bias", False)
    biased = {"qkv": attention_bias or family == "qwen2", "o": attention_bias, "mlp": config.get("mlp_bias", False)}
    projections = {   # name -> shape of the weight, which kind of bias
        "self_attn.q_proj": ((q_size, hidden), "qkv"), "self_attn.k_proj": ((kv_size, hidden), "qkv"),
        "self_attn.v_proj": ((kv_size, hidden), "qkv"), "self_attn.o_proj": ((hidden, q_size), "o"),
        "mlp.gate_proj": ((inter, hidden), "mlp"), "mlp.up_proj": ((inter, hidden), "mlp"),
        "mlp.down_proj": ((hidden, inter), "mlp")}

    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB_SIZE, hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        for module, (shape, kind) in projections.items():
            shapes[f"{prefix}{module}.weight"] = shape
            if biased[kind]:
                shapes[f"{prefix}{module}.bias"] = shape[:1]
        if family == "qwen3":
            shapes[prefix + "self_attn.q_norm.weight"] = shapes[prefix + "self_attn.k_norm.weight"] = (head_dim,)
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (VOCAB_SIZE, hidden)
    return shapes


def write_tokenizer(directory: Path) -> None:
    """One token per byte, in the order of `ByteLevel.alphabet` sorted, and an end-of-text token."""
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    fields = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(fields) + "\n")
