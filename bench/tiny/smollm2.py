"""SmolLM2-135M-Instruct for writing a corpus: weights and tokenizer from its GGUF file, one batched decode step.

A Llama of 30 layers, hidden 576, 9 query and 3 key-value heads of 64. The cache is one tensor per layer,
[B, S, 3, 64] in bf16 for keys and one for values, with a row for every slot; positions differ per slot. On a
GPU attention is a small Triton kernel that reads each row's cache only as far as it is filled.
"""
import math

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 30, 576, 9, 3, 64
GROUP = HEADS // KV_HEADS
EPS, THETA = 1e-5, 100_000.0
END_OF_TEXT, IM_START, IM_END = 0, 1, 2


def tokenizer(reader: gguf.GGUFReader) -> Tokenizer:
    """The byte-level BPE of the file: digits one by one, then GPT-2's pattern."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens[:17]])
    return tok


def ascii_tokens(reader: gguf.GGUFReader) -> dict[int, str]:
    """Tokens that may be sampled, in order: the two end tokens and all plain ASCII text."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    plain = {"Ġ", "Ċ"} | {chr(c) for c in range(33, 127)}
    return {i: t for i, t in enumerate(tokens) if i in (END_OF_TEXT, IM_END) or i > 16 and set(t) <= plain}


def half_split(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection back from GGUF's interleaved rope order to pairs (j, j + 32)."""
    return w.reshape(heads, HEAD_DIM // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def load(reader: gguf.GGUFReader, device: str, dtype: torch.dtype) -> dict:
    raw = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    put = lambda *ws: torch.from_numpy(np.concatenate(ws)).to(device, dtype)
    layers = []
    for i in range(LAYERS):
        w = lambda name: raw[f"blk.{i}.{name}.weight"]
        layers.append(dict(attn_norm=put(w("attn_norm")), ffn_norm=put(w("ffn_norm")),
                           qkv=put(half_split(w("attn_q"), HEADS), half_split(w("attn_k"), KV_HEADS), w("attn_v")),
                           out=put(w("attn_output")), gate_up=put(w("ffn_gate"), w("ffn_up")), down=put(w("ffn_down"))))
    return dict(embed=put(raw["token_embd.weight"]), norm=put(raw["output_norm.weight"]), layers=layers)


def rope_table(length: int, device: str) -> torch.Tensor:
    """cos and sin [length, 2, 32], float32."""
    freq = THETA ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * freq
    return torch.stack([angle.cos(), angle.sin()], 1).float().to(device)


def attend_torch(q, k, v, pos):
    """q [B, 9, 64] over k, v [B, S, 3, 64], each row up to its position: [B, 576]."""
    mask = torch.arange(k.shape[1], device=k.device) <= pos[:, None]                     # [B, S]
    q = q.view(-1, KV_HEADS, GROUP, HEAD_DIM)
    o = F.scaled_dot_product_attention(q, k.transpose(1, 2), v.transpose(1, 2), mask[:, None, None])
    return o.reshape(-1, HIDDEN)


def attend_triton(q, k, v, pos):
    from attention_triton import attention
    out = torch.empty(q.shape[0], HIDDEN, device=q.device, dtype=q.dtype)
    attention[(q.shape[0], KV_HEADS)](q, k, v, pos, out, HEAD_DIM ** -0.5 / math.log(2), k.shape[1])
    return out


class Decoder:
    """B slots of S positions. `forward(input_ids [B], positions [B])` returns logits over `allowed` [B, A]."""

    def __init__(self, reader, slots: int, length: int, device: str):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.weights = load(reader, device, dtype)
        tokens = ascii_tokens(reader)
        self.allowed = torch.tensor(list(tokens), device=device)
        self.word_starts = [t[0] == "Ġ" for t in tokens.values()]
        self.plain_words = [t[0] == "Ġ" and len(t) > 4 and t[1:].isalpha() and t[1:].islower() for t in tokens.values()]
        self.head = self.weights["embed"][self.allowed]
        cache = lambda: torch.zeros(slots, length, KV_HEADS, HEAD_DIM, device=device, dtype=dtype)
        self.keys, self.values = [cache() for _ in range(LAYERS)], [cache() for _ in range(LAYERS)]
        self.rope = rope_table(length, device)
        self.rows = torch.arange(slots, device=device)
        self.attend = attend_triton if device == "cuda" else attend_torch

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.weights["embed"][input_ids]                                             # [B, 576]
        cos, sin = self.rope[positions].unbind(1)                                        # [B, 32]
        cos, sin = cos[:, None], sin[:, None]
        for w, keys, values in zip(self.weights["layers"], self.keys, self.values):
            h = F.rms_norm(x, (HIDDEN,), w["attn_norm"], EPS) @ w["qkv"].T
            h = h.view(-1, HEADS + 2 * KV_HEADS, HEAD_DIM)
            a, b = h[:, :HEADS + KV_HEADS].float().chunk(2, -1)
            qk = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
            keys[self.rows, positions] = qk[:, HEADS:]
            values[self.rows, positions] = h[:, HEADS + KV_HEADS:]
            x = x + self.attend(qk[:, :HEADS].contiguous(), keys, values, positions) @ w["out"].T
            gate, up = (F.rms_norm(x, (HIDDEN,), w["ffn_norm"], EPS) @ w["gate_up"].T).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ w["down"].T
        return F.rms_norm(x, (HIDDEN,), self.weights["norm"], EPS) @ self.head.T
