"""GGUF import: one GGUF file becomes a Hugging Face checkpoint directory with unpacked weights.

What a GGUF says under other names (llama.cpp's convert_hf_to_gguf.py is what is undone here):
`attn_q` and `attn_k` of architecture llama have their rows in interleaved rope order; `rope_freqs` holds the
llama3 rope scaling as divisors; an absent `output.weight` means that the head is tied to the embedding.
"""

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

from vtlite.checkpoint.gguf_file import GGUFFile
from vtlite.checkpoint.gguf_tokenizer import token_id, write_tokenizer
from vtlite.checkpoint.safetensors import write_safetensors
from vtlite.errors import CheckpointError

DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float32": np.dtype(np.float32)}
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

# Metadata below the architecture's name that is understood. Any other key may change the arithmetic: refused.
KNOWN_KEYS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "attention.head_count",
    "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "attention.key_length", "attention.value_length",
    "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor",
}


def convert(gguf_path: str | Path, out_dir: str | Path, dtype: str = "bfloat16",
            progress: Callable[[int, int], None] | None = None, sampling: dict[str, float] | None = None) -> Path:
    """Write the checkpoint directory `out_dir` from a GGUF; returns its path.

    Weights are dequantised to float32 and rounded once to `dtype` ("bfloat16", or "float32" to keep them exact), one
    tensor at a time. `progress(done, total)` counts tensors. `sampling` goes into generation_config.json, because a
    GGUF has no place for the values its model was made for. The directory appears whole or not at all.
    CheckpointError: not a GGUF, truncated, an architecture, tokenizer, tensor or setting that is not implemented, or
    `out_dir` exists.
    """
    out_dir = Path(out_dir).absolute()
    if dtype not in DTYPES:
        raise CheckpointError(f"dtype should be one of {', '.join(DTYPES)}, found {dtype!r}")
    if out_dir.is_file() or (out_dir.is_dir() and any(out_dir.iterdir())):
        raise CheckpointError(f"{out_dir}: already exists; remove it or name another directory")
    file = GGUFFile(gguf_path)
    config = _config(file, dtype)
    sources = _match_tensors(file, config)

    partial = out_dir.with_name(f".{out_dir.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        partial.mkdir(parents=True)
        write_tokenizer(file, partial)
        _write_json(partial / "config.json", config)
        generation = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in config}
        _write_json(partial / "generation_config.json", generation | (sampling or {}))
        _write_weights(file, config, sources, DTYPES[dtype], partial / "model.safetensors", progress)
        partial.rename(out_dir)
    except OSError as error:
        raise CheckpointError(f"{out_dir}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)   # gone already if all went well
    return out_dir


def _config(file: GGUFFile, dtype: str) -> dict:
    """config.json for what the metadata describes."""
    arch = file.get("general.architecture", str)
    if arch not in ARCHITECTURES:
        raise CheckpointError(f"{file.path}: architecture {arch!r} is not implemented for import "
                              f"(implemented: {', '.join(ARCHITECTURES)})")
    unknown = sorted(key for key in file.metadata
                     if key.startswith(f"{arch}.") and key.removeprefix(f"{arch}.") not in KNOWN_KEYS)
    if unknown:
        raise CheckpointError(f"{file.path}: metadata that is not implemented: "
                              f"{', '.join(f'{key} = {file.metadata[key]!r:.60}' for key in unknown)}")

    def size(key: str, default: int | None = None) -> int:
        value = file.get(f"{arch}.{key}", int, default)
        if value < 1:
            raise CheckpointError(f"{file.path}: metadata key '{arch}.{key}' should be at least 1, found {value}")
        return value

    heads = size("attention.head_count")
    head_dim = size("attention.key_length", size("embedding_length") // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if size(key, head_dim) != head_dim:
            raise CheckpointError(f"{file.path}: '{arch}.{key}' is {size(key)}, only the head size {head_dim} is "
                                  "implemented")
    if head_dim % 2:
        raise CheckpointError(f"{file.path}: the head size should be even for rotary embeddings, found {head_dim}")
    config = {
        "architectures": [ARCHITECTURES[arch]],
        "model_type": arch,
        "hidden_size": size("embedding_length"),
        "intermediate_size": size("feed_forward_length"),
        "num_hidden_layers": size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": size("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": size("context_length"),
        "rms_norm_eps": _shortest(file.get(f"{arch}.attention.layer_norm_rms_epsilon", float)),
        "rope_theta": _shortest(file.get(f"{arch}.rope.freq_base", float, 10000.0)),
        "hidden_act": "silu",
        "vocab_size": len(file.get("tokenizer.ggml.tokens", list)),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": dtype,
    }
    if (scaling := _rope_scaling(file, arch, config)) is not None:
        config["rope_scaling"] = scaling
    eos = sorted({token_id(file, "eos"), token_id(file, "eot")} - {None})
    ids = {"bos_token_id": token_id(file, "bos"), "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
           "pad_token_id": token_id(file, "padding")}
    return config | {key: value for key, value in ids.items() if value is not None}


def _rope_scaling(file: GGUFFile, arch: str, config: dict) -> dict | None:
    kind = file.get(f"{arch}.rope.scaling.type", str, "none")
    if kind == "linear":
        return {"rope_type": "linear", "factor": _shortest(file.get(f"{arch}.rope.scaling.factor", float))}
    if kind != "none":
        raise CheckpointError(f"{file.path}: '{arch}.rope.scaling.type' is {kind!r}; implemented: none, linear, llama3")
    if "rope_freqs.weight" not in file.tensors:
        return None
    return _llama3_scaling(file, config["rope_theta"], config["head_dim"])


def _llama3_scaling(file: GGUFFile, theta: float, head_dim: int) -> dict:
    """The llama3 settings whose divisors `rope_freqs.weight` holds: 1 for short waves, `factor` for long ones."""
    shape = file.tensors["rope_freqs.weight"].shape
    if shape != (head_dim // 2,):
        raise CheckpointError(f"{file.path}: tensor 'rope_freqs.weight': expected shape {[head_dim // 2]}, "
                              f"found {list(shape)}")
    found = file.dequantize("rope_freqs.weight", np.dtype(np.float32))
    low, high, original = 1.0, 4.0, 8192
    factor = float(found.max())
    turns = original / (2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim))   # in the original context
    share = np.clip((turns - low) / (high - low), 0, 1)
    expected = 1 / ((1 - share) / factor + share)
    if not np.allclose(found, expected, rtol=1e-3):
        raise CheckpointError(f"{file.path}: tensor 'rope_freqs.weight' is not a llama3 rope scaling with low 1, high 4 "
                              f"and original context 8192 (largest divisor {factor}); others are not implemented")
    return {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": original}


def _match_tensors(file: GGUFFile, config: dict) -> dict[str, str]:
    """Checkpoint name -> GGUF name, for exactly the tensors that the config implies, in their shapes."""
    hidden, inter, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    embedding = (config["vocab_size"], hidden)
    expected = {"model.embed_tokens.weight": ("token_embd.weight", embedding),
                "model.norm.weight": ("output_norm.weight", (hidden,))}
    if not config["tie_word_embeddings"]:
        expected["lm_head.weight"] = ("output.weight", embedding)
    layer = {
        "input_layernorm.weight": ("attn_norm.weight", (hidden,)),
        "self_attn.q_proj.weight": ("attn_q.weight", (q, hidden)),
        "self_attn.k_proj.weight": ("attn_k.weight", (kv, hidden)),
        "self_attn.v_proj.weight": ("attn_v.weight", (kv, hidden)),
        "self_attn.o_proj.weight": ("attn_output.weight", (hidden, q)),
        "post_attention_layernorm.weight": ("ffn_norm.weight", (hidden,)),
        "mlp.gate_proj.weight": ("ffn_gate.weight", (inter, hidden)),
        "mlp.up_proj.weight": ("ffn_up.weight", (inter, hidden)),
        "mlp.down_proj.weight": ("ffn_down.weight", (hidden, inter)),
    }
    if config["model_type"] == "qwen2":
        layer |= {f"self_attn.{x}_proj.bias": (f"attn_{x}.bias", (rows,)) for x, rows in (("q", q), ("k", kv), ("v", kv))}
    if config["model_type"] == "qwen3":
        layer |= {f"self_attn.{x}_norm.weight": (f"attn_{x}_norm.weight", (head_dim,)) for x in ("q", "k")}
    if config["num_hidden_layers"] * len(layer) > len(file.tensors):
        raise CheckpointError(f"{file.path}: {config['num_hidden_layers']} blocks of {len(layer)} tensors are announced, "
                              f"but the file has {len(file.tensors)} tensors")
    for i in range(config["num_hidden_layers"]):
        expected |= {f"model.layers.{i}.{name}": (f"blk.{i}.{source}", shape) for name, (source, shape) in layer.items()}

    for source, shape in expected.values():
        if source not in file.tensors:
            raise CheckpointError(f"{file.path}: tensor '{source}' of shape {list(shape)} is missing")
        if file.tensors[source].shape != shape:
            raise CheckpointError(f"{file.path}: tensor '{source}': expected shape {list(shape)} from the metadata, "
                                  f"found {list(file.tensors[source].shape)}")
    sources = {name: source for name, (source, _) in expected.items()}
    unexpected = sorted(file.tensors.keys() - set(sources.values()) - {"rope_freqs.weight"})
    if unexpected:
        raise CheckpointError(f"{file.path}: {len(unexpected)} tensors that a {config['model_type']} model does not have: "
                              f"{', '.join(unexpected[:8])}")
    return sources


def _write_weights(file: GGUFFile, config: dict, sources: dict[str, str], dtype: np.dtype, path: Path,
                   progress: Callable[[int, int], None] | None) -> None:
    interleaved = {"q_proj.weight": config["num_attention_heads"], "k_proj.weight": config["num_key_value_heads"]} \
        if config["model_type"] == "llama" else {}

    def arrays():
        for done, (name, source) in enumerate(sources.items(), 1):
            array = file.dequantize(source, dtype)
            heads = interleaved.get(name.rpartition("self_attn.")[2])
            yield array if heads is None else half_split_rows(array, heads)
            if progress is not None:
                progress(done, len(sources))

    layout = {name: (dtype, file.tensors[source].shape) for name, source in sources.items()}
    write_safetensors(path, layout, arrays(), {"format": "pt"})


def half_split_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from interleaved rope order (a0 b0 a1 b1 ...) to half-split order (a0 a1 ... b0 b1 ...)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _shortest(value: float) -> float:
    """The shortest decimal with the same float32: 9.999999747e-06, as stored, is 1e-05."""
    return float(str(np.float32(value)))


def _write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
