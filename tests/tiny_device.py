"""Tiny checkpoints of sizes that the GPU's kernels take: head_dim 64, rows of a multiple of 8."""

from tests.tiny_checkpoints import COMMON, Family
from tests.tiny_dense import DENSE

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
