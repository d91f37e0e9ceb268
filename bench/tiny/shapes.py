"""The configurations of the three checkpoints and of the dense model they are measured against.

Sizes are multiples of 64, so every matrix product has K = 64 n. Each entry is a `config.json` as a published
model of that architecture spells it.
"""
COMMON = dict(vocab_size=4096, hidden_size=256, max_position_embeddings=2048, rms_norm_eps=1e-6, hidden_act="silu",
              attention_bias=False, attention_dropout=0.0, initializer_range=0.02, use_cache=True, dtype="bfloat16",
              bos_token_id=None, eos_token_id=0, pad_token_id=None)
GROUPED = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64)

HYBRID = dict(
    architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text", **COMMON, **GROUPED,
    num_hidden_layers=8, intermediate_size=512, tie_word_embeddings=True,
    layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 2, full_attention_interval=4, attn_output_gate=True,
    linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=64, linear_value_head_dim=64,
    linear_conv_kernel_dim=4, mamba_ssm_dtype="float32",
    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[6, 5, 5],
                         mrope_interleaved=True))

MLA = dict(
    architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", **COMMON,
    num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=4, intermediate_size=512, tie_word_embeddings=False,
    q_lora_rank=None, kv_lora_rank=128, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=64,
    first_k_dense_replace=1, moe_layer_freq=1, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
    moe_intermediate_size=128, topk_method="greedy", scoring_func="softmax", norm_topk_prob=False, n_group=1, topk_group=1,
    routed_scaling_factor=2.0, mlp_bias=False, rope_theta=10000.0,
    rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=512, beta_fast=32, beta_slow=1,
                      mscale=0.707, mscale_all_dim=0.707))


def qwen3(layers: int, intermediate_size: int) -> dict:
    return dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", **COMMON, **GROUPED, num_hidden_layers=layers,
                intermediate_size=intermediate_size, tie_word_embeddings=True, rope_theta=10000.0, rope_scaling=None,
                use_sliding_window=False, sliding_window=None, max_window_layers=layers)


SHAPES = {"tiny-hybrid": HYBRID, "tiny-mla": MLA, "tiny-dense": qwen3(6, 512), "dense-8m": qwen3(8, 896)}
