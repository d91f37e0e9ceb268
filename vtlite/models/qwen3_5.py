"""Qwen3.5, 3.6 and 3.8 (dense, text) and Qwen3-Next without experts: three gated delta nets, then one gated attention.

    h = embed(ids)
    each layer:        h += mixer(norm(h)),   h += down_proj(silu(gate) * up)          gate, up = projections of norm(h)
    linear_attention:  q, k, v = conv(in_proj_qkv(x));   g, beta = gates(in_proj_a(x), in_proj_b(x))
                       mixer = out_proj(norm(delta_rule(q, k, v, g, beta)) * silu(in_proj_z(x)))
    full_attention:    mixer = o_proj(attention(rope(norm(q)), rope(norm(k)), v) * sigmoid(gate))
    logits = lm_head(norm(h))

Gated delta net: Yang et al. 2024 (arXiv:2412.06464); gated attention: arXiv:2505.06708. State: a paged KV cache for each
attention layer; for each delta net the last W-1 inputs of its convolution and one matrix per value head (reference/gdn.py).
Norms store w - 1 ("zero-centred"), except the one inside a delta net. Rope turns the first quarter or so of a head. Text has
one position per token, so the three of multimodal rope are equal and it is plain rope.
Where bits differ from transformers: projections of one input are one product; residuals are added before the rounding of a
projection; the delta rule of a prompt runs token by token where the wing does, not by chunks.
"""

import logging
from dataclasses import dataclass

import numpy as np

from vtlite.config import ModelConfig
from vtlite.errors import ConfigError
from vtlite.models.rope_scaling import inverse_frequencies
from vtlite.tap import tap

log = logging.getLogger(__name__)

ARCHITECTURES = ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3NextForCausalLM")
KINDS = ("linear_attention", "full_attention")


class Qwen3_5Config:
    """config.json of this family, each field checked."""

    def __init__(self, config: ModelConfig):
        self.fused_projections = config.architecture == "Qwen3NextForCausalLM"
        self.vocab_size = config.vocab_size
        self.hidden_size = config.size("hidden_size")
        self.intermediate_size = config.size("intermediate_size")
        self.num_layers = config.size("num_hidden_layers")
        self.layer_types = _layer_types(config, self.num_layers)
        self.num_heads = config.size("num_attention_heads")
        self.num_kv_heads = config.size("num_key_value_heads")
        self.head_dim = config.size("head_dim")
        self.num_k_heads = config.size("linear_num_key_heads")
        self.num_v_heads = config.size("linear_num_value_heads")
        self.head_k_dim = config.size("linear_key_head_dim")
        self.head_v_dim = config.size("linear_value_head_dim")
        self.conv_width = config.size("linear_conv_kernel_dim")
        self.rms_norm_eps = config.get("rms_norm_eps", float)
        self.tie_word_embeddings = config.get("tie_word_embeddings", bool, False)
        self.inv_freq = inverse_frequencies(config, _rotary_dim(config, self.head_dim))
        config.refuse_unless("hidden_act", "silu")
        config.refuse_unless("attention_bias", False)
        config.refuse_unless("attn_output_gate", True)
        config.refuse_unless("output_gate_type", "swish", "silu")
        config.refuse_unless("mamba_ssm_dtype", "float32")
        config.refuse_unless("num_experts", 0)
        config.refuse_unless("quantization_config")
        if "full_attention" not in self.layer_types:
            raise ConfigError(f"{config.source}: none of the {self.num_layers} layers is a full_attention layer, and the KV "
                              "cache needs one")
        for many, few in (("num_attention_heads", "num_key_value_heads"),
                          ("linear_num_value_heads", "linear_num_key_heads")):
            if config.size(many) % config.size(few):
                raise ConfigError(f"{config.source}: {many} {config.size(many)} should be a multiple of "
                                  f"{few} {config.size(few)}")

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def k_size(self) -> int:
        """Width of the keys, and of the queries, of a delta net."""
        return self.num_k_heads * self.head_k_dim

    @property
    def v_size(self) -> int:
        return self.num_v_heads * self.head_v_dim

    @property
    def conv_size(self) -> int:
        """Channels of the convolution: q, k and v."""
        return 2 * self.k_size + self.v_size


def _layer_types(config: ModelConfig, num_layers: int) -> list[str]:
    """The kind of each layer; without `layer_types` the last of every `full_attention_interval` attends."""
    layer_types = config.get("layer_types", list, None)
    if layer_types is None:
        interval = config.size("full_attention_interval", 4)
        return [KINDS[(layer + 1) % interval == 0] for layer in range(num_layers)]
    unknown = set(map(str, layer_types)) - set(KINDS)
    if unknown or len(layer_types) != num_layers:
        raise ConfigError(f"{config.source}: 'layer_types' should hold {num_layers} of {' and '.join(KINDS)}, found "
                          f"{len(layer_types)} with {sorted(unknown) or 'no other kind'}")
    return layer_types


def _rotary_dim(config: ModelConfig, head_dim: int) -> int:
    factor = config.rope.get("partial_rotary_factor", config.get("partial_rotary_factor", float, 0.25))
    rotary_dim = int(head_dim * factor) if isinstance(factor, (int, float)) else 0
    if not 0 < rotary_dim <= head_dim or rotary_dim % 2:
        raise ConfigError(f"{config.source}: 'partial_rotary_factor' {factor!r} of head_dim {head_dim} should give an even "
                          f"number of elements from 2 to {head_dim}, found {rotary_dim}")
    return rotary_dim


@dataclass
class DeltaNet:
    """Weights of a linear_attention mixer."""

    in_proj: np.ndarray                      # [conv + v + 2 Hv, hidden]: all q, all k, all v, all z, all b, all a
    conv1d: np.ndarray                       # [W, conv] f32, transposed so that the channels of one tap lie together
    A_log: np.ndarray                        # [Hv] f32
    dt_bias: np.ndarray                      # [Hv] f32
    norm: np.ndarray                         # [head_v_dim] f32, not zero-centred
    out_proj: np.ndarray                     # [hidden, v]


@dataclass
class Attention:
    """Weights of a full_attention mixer."""

    qkv_proj: np.ndarray                     # [2 q + 2 kv, hidden]: a gate after the query of each head, then k, then v
    q_norm: np.ndarray                       # [head_dim]
    k_norm: np.ndarray
    o_proj: np.ndarray                       # [hidden, q]


@dataclass
class Layer:
    input_layernorm: np.ndarray              # [hidden]
    mixer: DeltaNet | Attention
    post_attention_layernorm: np.ndarray     # [hidden]
    gate_up_proj: np.ndarray                 # [2 intermediate, hidden]
    down_proj: np.ndarray                    # [hidden, intermediate]


class Qwen3_5:
    """One loaded model of the family, run with the operations `ops` and activations of `dtype`. `state_dtype`: of states."""

    def __init__(self, config: ModelConfig, weights, ops, dtype, state_dtype: np.dtype | None = None):
        self.config = Qwen3_5Config(config)
        self.ops, self.dtype = ops, dtype
        self.state_dtype = np.promote_types(dtype, np.float32) if state_dtype is None else state_dtype
        c = self.config
        prefix = "model.language_model." if "model.language_model.embed_tokens.weight" in weights else "model."
        self.embed_tokens = weights.take(prefix + "embed_tokens.weight", (c.vocab_size, c.hidden_size))
        self.layers = [_load_layer(c, weights, f"{prefix}layers.{i}.", kind) for i, kind in enumerate(c.layer_types)]
        self.norm = weights.take(prefix + "norm.weight", (c.hidden_size,))
        if c.tie_word_embeddings:
            weights.ignore(r"lm_head\.weight", "tied to the embedding")
            self.lm_head = self.embed_tokens
        else:
            self.lm_head = weights.take("lm_head.weight", (c.vocab_size, c.hidden_size))
        self.inv_freq = weights.place(c.inv_freq, np.float32)
        unread = (weights.ignore(r"model\.visual\..*", "the image encoder; text alone never meets it")
                  + weights.ignore(r"mtp\..*", "the head that drafts a second token; plain decoding does without"))
        if unread:
            log.info("%s: %d tensors of the image encoder and the draft head are not read", config.source, len(unread))

    @property
    def kv_shape(self) -> tuple[int, int, int]:
        """Attention layers, KV heads and head_dim of the paged cache."""
        return self.config.layer_types.count("full_attention"), self.config.num_kv_heads, self.config.head_dim

    prefill_grid = 64                        # delta nets compute prompts in chunks that begin on multiples of it

    @property
    def state_shapes(self) -> list[list[tuple[tuple[int, ...], np.dtype]]]:
        """For each delta net, (shape, dtype) of its conv_state and recurrent_state of one sequence."""
        c = self.config
        one = [((c.conv_width - 1, c.conv_size), self.dtype), ((c.num_v_heads, c.head_k_dim, c.head_v_dim), self.state_dtype)]
        return [one] * c.layer_types.count("linear_attention")

    def forward(self, batch, kv_cache, states) -> np.ndarray:
        """One step over a `Batch` of T tokens. Returns logits [L, vocab] f32.

        kv_cache holds one array per attention layer; states one [conv_state, recurrent_state] per delta net, by slot.
        """
        ops, c = self.ops, self.config
        kv_cache, states = iter(kv_cache), iter(states)
        cos, sin = ops.rope_cos_sin(batch.positions, self.inv_freq)                           # [T, rotary_dim / 2]
        h = tap("model.embed_tokens", ops.embedding(batch.input_ids, self.embed_tokens, self.dtype))
        for i, layer in enumerate(self.layers):
            x = tap(f"model.layers.{i}.input_layernorm", ops.rms_norm(h, layer.input_layernorm, c.rms_norm_eps, True))
            if isinstance(layer.mixer, DeltaNet):
                h = self._delta_net(layer.mixer, x, h, batch, *next(states))
            else:
                h = self._attention(layer.mixer, x, h, cos, sin, batch, next(kv_cache))
            x = tap(f"model.layers.{i}.post_attention_layernorm",
                    ops.rms_norm(h, layer.post_attention_layernorm, c.rms_norm_eps, True))
            h = ops.linear(ops.linear_silu_and_mul(x, layer.gate_up_proj), layer.down_proj, residual=h)
            tap(f"model.layers.{i}", h)
        h = tap("model.norm", ops.rms_norm(ops.gather_rows(h, batch.logits_indices), self.norm, c.rms_norm_eps, True))
        return tap("lm_head", ops.linear(h, self.lm_head, out_dtype=np.float32))

    def _delta_net(self, mixer: DeltaNet, x, h, batch, conv_state, recurrent_state):
        ops, c, T = self.ops, self.config, len(x)
        qkvzba, z_end = ops.linear(x, mixer.in_proj), c.conv_size + c.v_size
        qkv, z = qkvzba[:, : c.conv_size], qkvzba[:, c.conv_size : z_end]
        b, a = qkvzba[:, z_end : z_end + c.num_v_heads], qkvzba[:, z_end + c.num_v_heads :]
        o = ops.gated_delta_net(qkv, a, b, mixer.conv1d, mixer.A_log, mixer.dt_bias,
                                conv_state, recurrent_state, batch)                           # [T, Hv, V]
        y = ops.gated_rms_norm(o, z.reshape(*o.shape), mixer.norm, c.rms_norm_eps)
        return ops.linear(y.reshape(T, c.v_size), mixer.out_proj, residual=h)

    def _attention(self, mixer: Attention, x, h, cos, sin, batch, kv):
        ops, c, T = self.ops, self.config, len(x)
        heads = ops.linear(x, mixer.qkv_proj).reshape(T, -1, c.head_dim)
        q, gate = heads[:, 0 : 2 * c.num_heads : 2], heads[:, 1 : 2 * c.num_heads : 2]        # [T, H, head_dim]
        k, v = heads[:, 2 * c.num_heads : -c.num_kv_heads], heads[:, -c.num_kv_heads :]       # [T, Hkv, head_dim]
        q = ops.attention_inputs(q, k, v, cos, sin, kv, batch.slot_mapping, mixer.q_norm, mixer.k_norm, c.rms_norm_eps, True)
        o = ops.paged_attention(q, kv, batch, c.head_dim**-0.5)                               # [T, H * head_dim]
        y = ops.sigmoid_gate(o.reshape(*gate.shape), gate)
        return ops.linear(y.reshape(*o.shape), mixer.o_proj, residual=h)


def _load_layer(c: Qwen3_5Config, weights, prefix: str, kind: str) -> Layer:
    """Checkpoint names to parameters: every name is `prefix` and what stands here."""
    mlp = [prefix + "mlp.gate_proj.weight", prefix + "mlp.up_proj.weight"]
    return Layer(
        input_layernorm=weights.take(prefix + "input_layernorm.weight", (c.hidden_size,)),
        mixer=_load_delta_net(c, weights, prefix + "linear_attn.") if kind == "linear_attention"
        else _load_attention(c, weights, prefix + "self_attn."),
        post_attention_layernorm=weights.take(prefix + "post_attention_layernorm.weight", (c.hidden_size,)),
        gate_up_proj=weights.take_stacked(mlp, [(c.intermediate_size, c.hidden_size)] * 2),
        down_proj=weights.take(prefix + "mlp.down_proj.weight", (c.hidden_size, c.intermediate_size)),
    )


def _load_delta_net(c: Qwen3_5Config, weights, prefix: str) -> DeltaNet:
    if c.fused_projections:
        in_proj = _split_fused(c, weights, prefix)
    else:
        parts = {"qkv": c.conv_size, "z": c.v_size, "b": c.num_v_heads, "a": c.num_v_heads}
        in_proj = weights.take_stacked([f"{prefix}in_proj_{part}.weight" for part in parts],
                                       [(rows, c.hidden_size) for rows in parts.values()])
    conv1d = weights.read(prefix + "conv1d.weight", (c.conv_size, 1, c.conv_width))
    return DeltaNet(
        in_proj=in_proj,
        conv1d=weights.place(np.ascontiguousarray(conv1d[:, 0].T, np.float32), np.float32),
        A_log=weights.take(prefix + "A_log", (c.num_v_heads,), np.float32),
        dt_bias=weights.take(prefix + "dt_bias", (c.num_v_heads,), np.float32),
        norm=weights.take(prefix + "norm.weight", (c.head_v_dim,), np.float32),
        out_proj=weights.take(prefix + "out_proj.weight", (c.hidden_size, c.v_size)),
    )


def _split_fused(c: Qwen3_5Config, weights, prefix: str) -> np.ndarray:
    """Qwen3-Next stores q, k, v, z of one key head after another, and b, a likewise; here all q come first, then all k ..."""
    per_k_head = c.num_v_heads // c.num_k_heads

    def regrouped(name: str, *widths: int) -> list[np.ndarray]:
        """[Hk * sum(widths), hidden] -> the same rows, part by part instead of head by head."""
        rows = weights.read(prefix + name, (c.num_k_heads * sum(widths), c.hidden_size))
        parts = np.split(rows.reshape(c.num_k_heads, -1, c.hidden_size), np.cumsum(widths)[:-1], axis=1)
        return [part.reshape(-1, c.hidden_size) for part in parts]

    v = per_k_head * c.head_v_dim
    return weights.place(np.concatenate(regrouped("in_proj_qkvz.weight", c.head_k_dim, c.head_k_dim, v, v)
                                        + regrouped("in_proj_ba.weight", per_k_head, per_k_head)))


def _load_attention(c: Qwen3_5Config, weights, prefix: str) -> Attention:
    parts = {"q_proj": 2 * c.q_size, "k_proj": c.kv_size, "v_proj": c.kv_size}
    return Attention(
        qkv_proj=weights.take_stacked([f"{prefix}{part}.weight" for part in parts],
                                      [(rows, c.hidden_size) for rows in parts.values()]),
        q_norm=weights.take(prefix + "q_norm.weight", (c.head_dim,)),
        k_norm=weights.take(prefix + "k_norm.weight", (c.head_dim,)),
        o_proj=weights.take(prefix + "o_proj.weight", (c.hidden_size, c.q_size)),
    )
