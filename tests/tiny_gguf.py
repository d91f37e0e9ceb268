"""Tiny GGUF files made with the gguf package's own writer, for the tests of the import."""

import gguf
import numpy as np

from vtlite.checkpoint.tokenizer import BYTE_OF

HIDDEN, INTER, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 64, 96, 4, 2, 16, 2
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "1 2", "Ġ Ġ"]
TOKENS = [*CONTROL, *BYTE_OF, *(merge.replace(" ", "") for merge in MERGES), "<think>"]
TYPES = [3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL) - 1) + [4]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def tensors(arch: str, tied: bool = True, vocab: int = len(TOKENS)) -> dict[str, np.ndarray]:
    """Random float32 tensors under GGUF names, in the row order that a Hugging Face checkpoint has."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    layer = {"attn_norm": (HIDDEN,), "attn_q": (q, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN),
             "attn_output": (HIDDEN, q), "ffn_norm": (HIDDEN,), "ffn_gate": (INTER, HIDDEN), "ffn_up": (INTER, HIDDEN),
             "ffn_down": (HIDDEN, INTER)}
    if arch == "qwen3":
        layer |= {"attn_q_norm": (HEAD_DIM,), "attn_k_norm": (HEAD_DIM,)}
    shapes = {"token_embd.weight": (vocab, HIDDEN), "output_norm.weight": (HIDDEN,)}
    shapes |= {} if tied else {"output.weight": (vocab, HIDDEN)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
        if arch == "qwen2":
            shapes |= {f"blk.{i}.attn_{x}.bias": (rows,) for x, rows in (("q", q), ("k", kv), ("v", kv))}
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def interleaved_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """Row order of llama.cpp's llama architecture: row 2i of a head is row i, row 2i+1 is row i + head_dim/2."""
    by_head = weight.reshape(heads, -1, weight.shape[-1])
    half = by_head.shape[1] // 2
    out = np.empty_like(by_head)
    out[:, 0::2], out[:, 1::2] = by_head[:, :half], by_head[:, half:]
    return out.reshape(weight.shape)


def write(path, arch="llama", arrays=None, quantised=(), pre="smollm", model="gpt2", tokens=TOKENS, types=TYPES,
          merges=MERGES, scores=None, extra=None):
    """A GGUF at `path`. `quantised` tensors are stored as Q8_0; `scores` stand in for merges where the model is
    sentencepiece's; `extra` maps metadata keys to strings, ints, floats, bools."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges) if scores is None else writer.add_token_scores(scores)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for key, value in (extra or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool}
        add[type(value)](key, value)
    for name, array in (tensors(arch, vocab=len(tokens)) if arrays is None else arrays).items():
        if arch == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            array = interleaved_rows(array, HEADS if "attn_q" in name else KV_HEADS)
        if name in quantised:
            q8_0 = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(array, q8_0), raw_dtype=q8_0)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
