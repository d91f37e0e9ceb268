"""Tiny checkpoints of Qwen3.5 and Qwen3-Next: gated delta nets beside attention.

Value heads per key head are 1, 2 and 3; key and value widths differ; prompts end before, at and after the 64-token chunks in
which transformers computes them.
"""

from tests.tiny_checkpoints import COMMON, Family, projection_deviation

_COMMON = COMMON | {"attention_bias": False, "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4, "max_position_embeddings": 1024}
_QWEN3_5 = _COMMON | {
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "attn_output_gate": True,
    "mamba_ssm_dtype": "float32",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
                        "mrope_section": [2, 1, 1], "mrope_interleaved": True}}

CONFIGS: dict[str, dict] = {
    "qwen3_5": _QWEN3_5 | {           # two value heads per key head, wider values than keys, untied
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
        "linear_value_head_dim": 24, "tie_word_embeddings": False,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"]},
    "qwen3_5_ratio1": _QWEN3_5 | {    # attention first, tied, the activation of the output gate named
        "hidden_size": 72, "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 3,
        "num_key_value_heads": 3, "head_dim": 32, "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 20,
        "linear_value_head_dim": 12, "tie_word_embeddings": True, "output_gate_type": "swish",
        "layer_types": ["full_attention", "linear_attention", "linear_attention"]},
    "qwen3_5_ratio3": _QWEN3_5 | {    # no layer_types: every second layer attends
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "tie_word_embeddings": False, "full_attention_interval": 2},
    "qwen3_next": _COMMON | {         # fused projections, older spelling of rope, no experts
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "tie_word_embeddings": False, "full_attention_interval": 4, "num_experts": 0,
        "rope_theta": 10000.0, "rope_scaling": None, "partial_rotary_factor": 0.25},
}


def _distribution(tensor: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if tensor.endswith("linear_attn.norm.weight"):
        return 1.0, 0.2
    if tensor.endswith("A_log"):
        return -1.0, 0.7                         # decays of a few tokens and of many
    if len(shape) == 1:
        return 0.0, 0.3                          # other norms store w - 1
    if tensor.endswith("conv1d.weight"):
        return 0.0, 0.6
    return 0.0, projection_deviation(tensor, shape)


def _shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint and its shape."""
    hidden, inter, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q_size, kv_size = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    v_heads, v_dim = config["linear_num_value_heads"], config["linear_value_head_dim"]
    k_size, v_size = config["linear_num_key_heads"] * config["linear_key_head_dim"], v_heads * v_dim
    if config["model_type"] == "qwen3_next":
        projections = {"in_proj_qkvz": 2 * k_size + 2 * v_size, "in_proj_ba": 2 * v_heads}
    else:
        projections = {"in_proj_qkv": 2 * k_size + v_size, "in_proj_z": v_size, "in_proj_b": v_heads, "in_proj_a": v_heads}
    delta_net = {
        **{f"linear_attn.{name}.weight": (rows, hidden) for name, rows in projections.items()},
        "linear_attn.conv1d.weight": (2 * k_size + v_size, 1, config["linear_conv_kernel_dim"]),
        "linear_attn.A_log": (v_heads,), "linear_attn.dt_bias": (v_heads,), "linear_attn.norm.weight": (v_dim,),
        "linear_attn.out_proj.weight": (hidden, v_size)}
    attention = {
        "self_attn.q_proj.weight": (2 * q_size, hidden), "self_attn.k_proj.weight": (kv_size, hidden),
        "self_attn.v_proj.weight": (kv_size, hidden), "self_attn.o_proj.weight": (hidden, q_size),
        "self_attn.q_norm.weight": (head_dim,), "self_attn.k_norm.weight": (head_dim,)}
    every = {
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inter, hidden), "mlp.up_proj.weight": (inter, hidden),
        "mlp.down_proj.weight": (hidden, inter)}

    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {**every, **(attention if attends(config, layer) else delta_net)}.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def attends(config: dict, layer: int) -> bool:
    if "layer_types" in config:
        return config["layer_types"][layer] == "full_attention"
    return (layer + 1) % config["full_attention_interval"] == 0


HYBRIDS = Family("hybrid", CONFIGS, (1, 63, 64, 65, 127), _shapes, _distribution, seed=2000)
