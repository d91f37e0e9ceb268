"""Tiny random checkpoints: what every family of them shares.

A checkpoint is a Hugging Face directory (config.json, model.safetensors in bfloat16, a byte-level tokenizer) whose bytes
depend on its family's tables alone, so that goldens recorded from it elsewhere hold anywhere. Scales are chosen so that
attention is far from uniform, every layer matters and the best logit leads by a margin.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

EOS, VOCAB_SIZE = 256, 300      # ids 0-255 are the bytes; those above 256 are rows that no text encodes to

COMMON = {
    "attention_dropout": 0.0, "bos_token_id": EOS, "eos_token_id": EOS, "hidden_act": "silu", "initializer_range": 0.02,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": VOCAB_SIZE,
}


@dataclass(frozen=True)
class Family:
    """Checkpoints of architectures that name their tensors alike."""

    name: str
    configs: dict[str, dict]                                            # checkpoint -> its config.json
    prompt_lengths: tuple[int, ...]
    shapes: Callable[[dict], dict[str, tuple[int, ...]]]                # of a config: every tensor and its shape
    distribution: Callable[[str, tuple[int, ...]], tuple[float, float]]     # of a tensor: mean and standard deviation
    seed: int

    def build(self, name: str, directory: Path) -> Path:
        """Write the checkpoint `name` into `directory`, which is made if need be; returns it."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.configs[name], indent=2) + "\n")
        (directory / "generation_config.json").write_text(json.dumps({"bos_token_id": EOS, "eos_token_id": EOS}) + "\n")
        save_file(self.tensors(name), directory / "model.safetensors", metadata={"format": "pt"})
        write_tokenizer(directory)
        return directory

    def prompts(self, name: str) -> list[list[int]]:
        """Prompts of token ids, of `prompt_lengths`."""
        rng = self._generator(name, 1000)
        return [rng.integers(0, VOCAB_SIZE, length).tolist() for length in self.prompt_lengths]

    def tensors(self, name: str) -> dict[str, np.ndarray]:
        """The bfloat16 tensors, drawn one after another in the order of `shapes`."""
        rng = self._generator(name, 0)

        def draw(tensor: str, shape: tuple[int, ...]) -> np.ndarray:
            mean, deviation = self.distribution(tensor, shape)
            noise = rng.standard_normal(shape, dtype=np.float32)
            return (np.float32(mean) + np.float32(deviation) * noise).astype(ml_dtypes.bfloat16)

        return {tensor: draw(tensor, shape) for tensor, shape in self.shapes(self.configs[name]).items()}

    def _generator(self, name: str, offset: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(self.seed + offset + list(self.configs).index(name)))


def projection_deviation(tensor: str, shape: tuple[int, ...]) -> float:
    """Of a projection's weights, so that its output for a normalised input has the standard deviation `gain`."""
    gain = {"q_proj": 1.6, "k_proj": 1.6, "embed_tokens": 3.0, "lm_head": 3.0}.get(tensor.split(".")[-2], 1.5)
    return gain / shape[1] ** 0.5


def write_tokenizer(directory: Path) -> None:
    """One token per byte, in the order of `ByteLevel.alphabet` sorted, and an end-of-text token."""
    vocab = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    fields = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(fields) + "\n")
