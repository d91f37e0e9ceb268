"""One forward pass of a model over one prompt, without the engine."""

from types import SimpleNamespace

import numpy as np

from vtlite.checkpoint.weights import Weights
from vtlite.config import ModelConfig
from vtlite.models.registry import load_model
from vtlite.tap import collect

BLOCK_SIZE = 16


def forward(directory, prompt: list[int], ops, dtype) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Logits of every position [T, vocab], and what was tapped on the way."""
    model = load_model(ModelConfig.read(directory), Weights(directory), ops, np.dtype(dtype))
    num_layers, num_kv_heads, head_dim = model.kv_shape
    length = len(prompt)
    num_blocks = -(-length // BLOCK_SIZE)
    batch = SimpleNamespace(
        input_ids=np.array(prompt), positions=np.arange(length), slot_mapping=np.arange(length) + BLOCK_SIZE,
        query_start_loc=np.array([0, length]), seq_lens=np.array([length]), logits_indices=np.arange(length),
        block_table=np.arange(1, num_blocks + 1, dtype=np.int32)[None], state_slots=np.array([1]))
    cache = [np.zeros((2, num_blocks + 1, BLOCK_SIZE, num_kv_heads, head_dim), dtype) for _ in range(num_layers)]
    states = [[np.zeros((2, *shape), kind) for shape, kind in layer] for layer in model.state_shapes]
    seen = {}
    with collect(lambda name, array: seen.__setitem__(name, array.copy())):
        logits = model.forward(batch, cache, states)
    return logits, seen


def relative_rms(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sqrt(np.mean((found - exact) ** 2.0) / np.mean(exact**2.0)))
