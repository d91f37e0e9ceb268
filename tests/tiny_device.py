"""Tiny checkpoints of sizes that the GPU's kernels take: head_dim 64, rows of a multiple of 8, keys of 64 or 128."""

from tests.tiny_checkpoints import COMMON, Family
from tests.tiny_dense import DENSE
from tests.tiny_hybrids import HYBRIDS

_QWEN3 = COMMON | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rms_norm_eps": 1e-6, "head_dim": 64,
                   "attention_bias": False, "rope_theta": 1000000.0}
_MISTRAL = COMMON | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "rms_norm_eps": 1e-5, "head_dim": 64,
                     "rope_theta": 10000.0}
_LLAMA = COMMON | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5, "head_dim": 64,
                   "rope_theta": 10000.0}

DEVICE = Family("device", {
    "two_layers": _QWEN3 | {
        "hidden_size": 128, "intermediate_size": 328, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "tie_word_embeddings": False, "max_position_embeddings": 4096},
    "window": _MISTRAL | {            # a window shorter than most prompts
        "hidden_size": 96, "intermediate_size": 136, "num_hidden_layers": 2, "num_attention_heads": 3,
        "num_key_value_heads": 3, "sliding_window": 40, "tie_word_embeddings": False, "max_position_embeddings": 4096},
    "biases": _LLAMA | {              # every bias, eight query heads per KV head
        "hidden_size": 72, "intermediate_size": 104, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
        "max_position_embeddings": 4096},
}, prompt_lengths=(5, 3), shapes=DENSE.shapes, distribution=DENSE.distribution, seed=3000)

_QWEN3_5 = HYBRIDS.configs["qwen3_5"] | {"head_dim": 64, "max_position_embeddings": 4096}

DEVICE_HYBRIDS = Family("device_hybrid", {
    "hybrid": _QWEN3_5 | {            # three value heads per key head, the widths of real models
        "hidden_size": 128, "intermediate_size": 136, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 4, "linear_num_value_heads": 12},
    "hybrid_narrow": _QWEN3_5 | {     # attention first, tied, values half as wide as keys
        "hidden_size": 72, "intermediate_size": 104, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1,
        "linear_key_head_dim": 64, "linear_value_head_dim": 32, "linear_num_key_heads": 4, "linear_num_value_heads": 4,
        "tie_word_embeddings": True, "layer_types": ["full_attention", "linear_attention", "linear_attention"]},
    "hybrid_smallest": _QWEN3_5 | {   # what the emulator runs in seconds
        "vocab_size": 32, "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 1,
        "num_key_value_heads": 1, "linear_key_head_dim": 64, "linear_value_head_dim": 32, "linear_num_key_heads": 1,
        "linear_num_value_heads": 4, "tie_word_embeddings": True, "layer_types": ["linear_attention", "full_attention"],
        "max_position_embeddings": 512},
}, prompt_lengths=(5, 3), shapes=HYBRIDS.shapes, distribution=HYBRIDS.distribution, seed=4000)
