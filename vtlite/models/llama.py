"""The Llama family: Llama 2/3, SmolLM2, Mistral, Qwen2/2.5 and Qwen3 (dense).

    h = embed(ids)
    each layer:   h += o_proj(attention(rope(q), rope(k), v))     q, k, v = projections of input_layernorm(h)
                  h += down_proj(silu(gate) * up)                 gate, up = projections of post_attention_layernorm(h)
    logits = lm_head(norm(h))

Touvron et al. 2023 (arXiv:2302.13971); grouped queries arXiv:2305.13245; Qwen3's norm of each q and k head:
arXiv:2505.09388. State: one paged KV cache per layer.
Where bits differ from transformers: q, k, v are one product and gate, up another; residuals are added before the
rounding of a projection; in bfloat16, norms and rope round once.
"""

from dataclasses import dataclass

import numpy as np

from vtlite.config import ModelConfig
from vtlite.errors import ConfigError
from vtlite.models.rope_scaling import inverse_frequencies
from vtlite.tap import tap


@dataclass(frozen=True)
class Variant:
    """What one architecture name adds to the common layer."""

    qkv_bias: bool = False           # biases that no config key announces
    bias_keys: bool = False          # attention_bias and mlp_bias are read
    qk_norm: bool = False
    window_on_every_layer: bool = False


VARIANTS = {
    "LlamaForCausalLM": Variant(bias_keys=True),
    "MistralForCausalLM": Variant(window_on_every_layer=True),
    "Qwen2ForCausalLM": Variant(qkv_bias=True),
    "Qwen3ForCausalLM": Variant(bias_keys=True, qk_norm=True),
}


class LlamaConfig:
    """config.json of this family, each field checked."""

    def __init__(self, config: ModelConfig):
        variant = VARIANTS[config.architecture]
        self.vocab_size = config.vocab_size
        self.hidden_size = config.size("hidden_size")
        self.intermediate_size = config.size("intermediate_size")
        self.num_layers = config.size("num_hidden_layers")
        self.num_heads = config.size("num_attention_heads")
        self.num_kv_heads = config.size("num_key_value_heads", self.num_heads)
        self.head_dim = config.size("head_dim", self.hidden_size // self.num_heads)
        self.rms_norm_eps = config.get("rms_norm_eps", float)
        self.tie_word_embeddings = config.get("tie_word_embeddings", bool, False)
        self.qk_norm = variant.qk_norm
        self.qkv_bias = variant.qkv_bias or (variant.bias_keys and config.get("attention_bias", bool, False))
        self.o_bias = variant.bias_keys and config.get("attention_bias", bool, False)
        self.mlp_bias = variant.bias_keys and config.get("mlp_bias", bool, False)
        self.windows = _windows(config, variant, self.num_layers)
        self.inv_freq = inverse_frequencies(config, self.head_dim)
        config.refuse_unless("hidden_act", "silu")
        config.refuse_unless("partial_rotary_factor", 1, 1.0)
        config.refuse_unless("pretraining_tp", 1)
        config.refuse_unless("quantization_config")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(f"{config.source}: num_attention_heads {self.num_heads} should be a multiple of "
                              f"num_key_value_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise ConfigError(f"{config.source}: head_dim should be even, found {self.head_dim}")

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim


def _windows(config: ModelConfig, variant: Variant, num_layers: int) -> list[int | None]:
    """The sliding window of each layer, None = full attention. `layer_types`, where present, decides."""
    in_use = config.get("use_sliding_window", bool, variant.window_on_every_layer)
    sliding = config.get("sliding_window", int, None) if in_use else None
    layer_types = config.get("layer_types", list, None)
    if layer_types is None:
        first = 0 if variant.window_on_every_layer else config.get("max_window_layers", int, 28)   # transformers' default
        return [sliding if layer >= first else None for layer in range(num_layers)]
    unknown = set(map(str, layer_types)) - {"full_attention", "sliding_attention"}
    if unknown or len(layer_types) != num_layers:
        raise ConfigError(f"{config.source}: 'layer_types' should hold {num_layers} of full_attention and "
                          f"sliding_attention, found {len(layer_types)} with {sorted(unknown) or 'no other kind'}")
    if "sliding_attention" in layer_types and sliding is None:
        raise ConfigError(f"{config.source}: 'layer_types' has sliding_attention but 'sliding_window' is not set")
    return [sliding if kind == "sliding_attention" else None for kind in layer_types]


@dataclass
class Layer:
    """Weights of one layer; [N, K] as on disk, None where the architecture has none."""

    input_layernorm: np.ndarray              # [hidden]
    qkv_proj: np.ndarray                     # [q + 2 kv, hidden]
    qkv_bias: np.ndarray | None
    q_norm: np.ndarray | None                # [head_dim]
    k_norm: np.ndarray | None
    o_proj: np.ndarray                       # [hidden, q]
    o_bias: np.ndarray | None
    post_attention_layernorm: np.ndarray     # [hidden]
    gate_up_proj: np.ndarray                 # [2 intermediate, hidden]
    gate_up_bias: np.ndarray | None
    down_proj: np.ndarray                    # [hidden, intermediate]
    down_bias: np.ndarray | None
    window: int | None


class Llama:
    """One loaded model of the family, run with the operations `ops` and activations of `dtype`."""

    state_shapes = ()                        # between steps only the paged cache is kept
    prefill_grid = 1                         # a prompt may be cut anywhere

    def __init__(self, config: ModelConfig, weights, ops, dtype):
        self.config = LlamaConfig(config)
        self.ops, self.dtype = ops, dtype
        c = self.config
        self.embed_tokens = weights.take("model.embed_tokens.weight", (c.vocab_size, c.hidden_size))
        self.layers = [_load_layer(c, weights, layer) for layer in range(c.num_layers)]
        self.norm = weights.take("model.norm.weight", (c.hidden_size,))
        if c.tie_word_embeddings:
            weights.ignore(r"lm_head\.weight", "tied to the embedding")
            self.lm_head = self.embed_tokens
        else:
            self.lm_head = weights.take("lm_head.weight", (c.vocab_size, c.hidden_size))
        self.inv_freq = weights.place(c.inv_freq, np.float32)
        weights.ignore(r".*\.rotary_emb\.inv_freq", "derived from config.json")

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """Layers, KV heads and head_dim of the paged cache."""
        return self.config.num_layers, self.config.num_kv_heads, self.config.head_dim

    def forward(self, batch, kv_cache, states=()) -> np.ndarray:
        """One step over a `Batch` of T tokens; kv_cache holds one array per layer. Returns logits [L, vocab] f32."""
        ops, c = self.ops, self.config
        cos, sin = ops.rope_cos_sin(batch.positions, self.inv_freq)                           # [T, head_dim / 2]
        h = tap("model.embed_tokens", ops.embedding(batch.input_ids, self.embed_tokens, self.dtype))
        for i, layer in enumerate(self.layers):
            x = tap(f"model.layers.{i}.input_layernorm", ops.rms_norm(h, layer.input_layernorm, c.rms_norm_eps))
            a = self._attention(layer, x, cos, sin, batch, kv_cache[i])                       # [T, heads * head_dim]
            h = ops.linear(a, layer.o_proj, layer.o_bias, residual=h)
            x = tap(f"model.layers.{i}.post_attention_layernorm",
                    ops.rms_norm(h, layer.post_attention_layernorm, c.rms_norm_eps))
            y = ops.linear_silu_and_mul(x, layer.gate_up_proj, layer.gate_up_bias)                # [T, intermediate]
            h = ops.linear(y, layer.down_proj, layer.down_bias, residual=h)
            tap(f"model.layers.{i}", h)
        h = tap("model.norm", ops.rms_norm(ops.gather_rows(h, batch.logits_indices), self.norm, c.rms_norm_eps))
        return tap("lm_head", ops.linear(h, self.lm_head, out_dtype=np.float32))

    def _attention(self, layer: Layer, x, cos, sin, batch, kv):
        ops, c = self.ops, self.config
        qkv = ops.linear(x, layer.qkv_proj, layer.qkv_bias)
        qkv = qkv.reshape(len(x), -1, c.head_dim)                                             # [T, heads, head_dim]
        q, k, v = qkv[:, : c.num_heads], qkv[:, c.num_heads : -c.num_kv_heads], qkv[:, -c.num_kv_heads :]
        q = ops.attention_inputs(q, k, v, cos, sin, kv, batch.slot_mapping, layer.q_norm, layer.k_norm, c.rms_norm_eps)
        return ops.paged_attention(q, kv, batch, c.head_dim**-0.5, layer.window)


def _load_layer(c: LlamaConfig, weights, index: int) -> Layer:
    """Checkpoint names to parameters: every name is `model.layers.{index}.` and what stands here."""
    prefix = f"model.layers.{index}."

    def take(name: str, *shape: int, when: bool = True):
        return weights.take(prefix + name, shape) if when else None

    def stacked(module: str, parts: dict[str, int], kind: str, *columns: int, when: bool = True):
        names = [f"{prefix}{module}.{part}.{kind}" for part in parts]
        return weights.take_stacked(names, [(rows, *columns) for rows in parts.values()]) if when else None

    qkv = {"q_proj": c.q_size, "k_proj": c.kv_size, "v_proj": c.kv_size}
    gate_up = {"gate_proj": c.intermediate_size, "up_proj": c.intermediate_size}
    return Layer(
        input_layernorm=take("input_layernorm.weight", c.hidden_size),
        qkv_proj=stacked("self_attn", qkv, "weight", c.hidden_size),
        qkv_bias=stacked("self_attn", qkv, "bias", when=c.qkv_bias),
        q_norm=take("self_attn.q_norm.weight", c.head_dim, when=c.qk_norm),
        k_norm=take("self_attn.k_norm.weight", c.head_dim, when=c.qk_norm),
        o_proj=take("self_attn.o_proj.weight", c.hidden_size, c.q_size),
        o_bias=take("self_attn.o_proj.bias", c.hidden_size, when=c.o_bias),
        post_attention_layernorm=take("post_attention_layernorm.weight", c.hidden_size),
        gate_up_proj=stacked("mlp", gate_up, "weight", c.hidden_size),
        gate_up_bias=stacked("mlp", gate_up, "bias", when=c.mlp_bias),
        down_proj=take("mlp.down_proj.weight", c.hidden_size, c.intermediate_size),
        down_bias=take("mlp.down_proj.bias", c.hidden_size, when=c.mlp_bias),
        window=c.windows[index],
    )
