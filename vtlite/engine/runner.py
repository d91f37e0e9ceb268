"""Owns the model and its KV cache; turns a Batch into drawn tokens."""

from typing import NamedTuple

import numpy as np

from vtlite.engine.batch import Batch
from vtlite.engine.scheduler import Plan


class StepResult(NamedTuple):
    """What a forward pass gives back."""

    samples: NamedTuple                      # Samples of batch.sampled, row by row
    prompt_logprobs: tuple | None            # logprobs, ranks, top_ids, top_logprobs of the prompt rows


class Runner:
    """Runs a model with the operations `ops` over a paged KV cache of `num_blocks` blocks."""

    def __init__(self, model, ops, num_blocks: int, block_size: int):
        num_layers, num_kv_heads, head_dim = model.kv_shape
        self.model, self.ops, self.block_size = model, ops, block_size
        self.kv_cache = [np.zeros((2, num_blocks, block_size, num_kv_heads, head_dim), model.dtype) for _ in range(num_layers)]
        self._saved: dict[tuple[str, int], np.ndarray] = {}

    def move(self, plan: Plan) -> None:
        """Carry out a Plan's saves, restores and discards: the KV of preempted requests."""
        for request, blocks in plan.saves:
            self._saved[request.key] = np.stack([layer[:, blocks] for layer in self.kv_cache])
        for request, blocks in plan.restores:
            for layer, kept in zip(self.kv_cache, self._saved.pop(request.key)):
                layer[:, blocks] = kept
        for request in plan.discards:
            self._saved.pop(request.key, None)

    def forward(self, batch: Batch) -> StepResult:
        logits = self.model.forward(batch, self.kv_cache)
        samples = self.ops.sample(logits[batch.sample_indices], batch.sampling)
        prompt = None
        if len(batch.prompt_indices):
            prompt = self.ops.token_logprobs(logits[batch.prompt_indices], batch.prompt_targets, batch.num_prompt_logprobs)
        return StepResult(samples, prompt)
