"""Owns the model, its KV cache and its recurrent states; turns a Batch into drawn tokens."""

from typing import NamedTuple

import numpy as np

from vtlite.engine.batch import Batch
from vtlite.engine.moves import Caches


class StepResult(NamedTuple):
    """What a forward pass gives back."""

    samples: NamedTuple                      # Samples of batch.sampled, row by row
    prompt_logprobs: tuple | None            # logprobs, ranks, top_ids, top_logprobs of the prompt rows


class Runner(Caches):
    """Runs a model with the operations `ops` over `num_blocks` blocks of paged KV cache and `num_slots` state slots."""

    def __init__(self, model, ops, num_blocks: int, block_size: int, num_slots: int):
        super().__init__()
        num_layers, num_kv_heads, head_dim = model.kv_shape
        self.model, self.ops, self.block_size = model, ops, block_size
        self.kv_cache = [np.zeros((2, num_blocks, block_size, num_kv_heads, head_dim), model.dtype) for _ in range(num_layers)]
        self.states = [[np.zeros((num_slots, *shape), dtype) for shape, dtype in layer] for layer in model.state_shapes]
        self._forward = ops.replayed(model.forward) if hasattr(ops, "replayed") else model.forward
        self._state_arrays = [array for layer in self.states for array in layer]

    def _kv_of(self, blocks: list[int]) -> list[np.ndarray]:
        return [layer[:, blocks] for layer in self.kv_cache]

    def _restore_kv(self, blocks: list[int], kept: list[np.ndarray]) -> None:
        for layer, kv in zip(self.kv_cache, kept):
            layer[:, blocks] = kv

    def _state_of(self, slot: int) -> list[np.ndarray]:
        return [array[slot].copy() for array in self._state_arrays]

    def _restore_state(self, slot: int, kept: list[np.ndarray]) -> None:
        for array, state in zip(self._state_arrays, kept):
            array[slot] = state

    def _reset_state(self, slot: int) -> None:
        for array in self._state_arrays:
            array[slot] = 0

    def _copy_state(self, source: int, target: int) -> None:
        for array in self._state_arrays:
            array[target] = array[source]

    def forward(self, batch: Batch) -> StepResult:
        logits = self._forward(batch, self.kv_cache, self.states)
        everyone = len(batch.sample_indices) == len(logits)                     # then there is nothing to pick out, or to copy
        samples = self.ops.sample(logits if everyone else logits[batch.sample_indices], batch.sampling)
        prompt = None
        if len(batch.prompt_indices):
            prompt = self.ops.token_logprobs(logits[batch.prompt_indices], batch.prompt_targets, batch.num_prompt_logprobs)
        return StepResult(samples, prompt)
