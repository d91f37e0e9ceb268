"""Tiny checkpoints of the dense architectures, one for each thing that they can ask of a model."""

from tests.tiny_checkpoints import COMMON, VOCAB_SIZE, Family, projection_deviation

_LLAMA = COMMON | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5, "pretraining_tp": 1}
_MISTRAL = COMMON | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "rms_norm_eps": 1e-5}
_QWEN2 = COMMON | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rms_norm_eps": 1e-6}
_QWEN3 = COMMON | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6}

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


def _distribution(tensor: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if tensor.endswith("norm.weight"):
        return 1.0, 0.2
    if len(shape) == 1:
        return 0.0, 0.3
    return 0.0, projection_deviation(tensor, shape)


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


DENSE = Family("dense", CONFIGS, (1, 13, 40), _shapes, _distribution, seed=0)
