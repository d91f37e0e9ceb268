"""Owns the model, its KV cache and its recurrent states; turns a Batch into drawn tokens."""

from typing import NamedTuple

import numpy as np

from vtlite.engine.batch import Batch
from vtlite.engine.scheduler import Plan


class StepResult(NamedTuple):
    """What a forward pass gives back."""

    samples: NamedTuple                      # Samples of batch.sampled, row by row
    prompt_logprobs: tuple | None            # logprobs, ranks, top_ids, top_logprobs of the prompt rows


class Runner:
    """Runs a model with the operations `ops` over `num_blocks` blocks of paged KV cache and `num_slots` state slots."""

    def __init__(self, model, ops, num_blocks: int, block_size: int, num_slots: int):
        num_layers, num_kv_heads, head_dim = model.kv_shape
        self.model, self.ops, self.block_size = model, ops, block_size
        self.kv_cache = [np.zeros((2, num_blocks, block_size, num_kv_heads, head_dim), model.dtype) for _ in range(num_layers)]
        self.states = [[np.zeros((num_slots, *shape), dtype) for shape, dtype in layer] for layer in model.state_shapes]
        self._forward = ops.replayed(model.forward) if hasattr(ops, "replayed") else model.forward
        self._state_arrays = [array for layer in self.states for array in layer]
        self._saved: dict[tuple[str, int], tuple[list[np.ndarray], list[np.ndarray]]] = {}

    def move(self, plan: Plan) -> None:
        """Carry out what a Plan says of the caches: KV and states of preempted requests, states of cached prefixes, zero states."""
        self._copy_states(plan.keeps)
        for request, blocks, slot in plan.saves:
            kv = [layer[:, blocks] for layer in self.kv_cache]
            self._saved[request.key] = kv, [array[slot].copy() for array in self._state_arrays]
        for request, blocks, slot in plan.restores:
            kv, state = self._saved.pop(request.key)
            for layer, kept in zip(self.kv_cache, kv):
                layer[:, blocks] = kept
            for array, kept in zip(self._state_arrays, state):
                array[slot] = kept
        for array in self._state_arrays:
            array[plan.resets] = 0
        self._copy_states(plan.loads)
        for request in plan.discards:
            self._saved.pop(request.key, None)

    def _copy_states(self, pairs: list[tuple[int, int]]) -> None:
        for source, target in pairs:
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
