"""Decode steps made again from a recording: a CPU's counterpart of a CUDA graph.

A decode step of S sequences runs the same kernels with the same sizes every time; only what a few input arrays hold
is new. So the first one is recorded, its arrays are kept, and the next ones copy their inputs there and let one
compiled loop make all the calls: a tenth of a microsecond for each, against 5 to 8 and what Python does around it. It
works because the operations of this wing do all that follows from the inputs in kernels. Arithmetic and order are those
of the recorded step, hence the bits.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vtlite import tap
from vtlite.cpu.kernel import recording
from vtlite.cpu.launcher import launch

MOST_SEQUENCES = 8            # a recording keeps all activations of a step; with more rows Python's share is small

_INPUTS = ("input_ids", "positions", "query_start_loc", "seq_lens", "slot_mapping", "state_slots", "logits_indices")


def replayed(forward: Callable) -> Callable:
    """`forward(batch, kv_cache, states) -> logits` of a model, faster for decode steps.

    The caches must be the same arrays in every call, and logits are to be read before the next one.
    """
    steps: dict[int, _Step] = {}

    def forward_or_replay(batch, kv_cache, states) -> np.ndarray:
        S = len(batch.seq_lens)
        if not len(batch.input_ids) == len(batch.logits_indices) == S <= MOST_SEQUENCES or tap.is_open():
            return forward(batch, kv_cache, states)
        if S in steps and batch.block_table.shape[1] <= steps[S].batch.block_table.shape[1]:
            return steps[S].again(batch)
        steps[S] = _Step(forward, batch, kv_cache, states)
        return steps[S].logits

    return forward_or_replay


class _Step:
    """One recorded step: its inputs, its kernel calls, its logits. `batch` is made with room for a longer block table."""

    def __init__(self, forward, batch, kv_cache, states):
        S, width = batch.block_table.shape
        table = np.zeros((S, 2 * width), np.int32)
        table[:, :width] = batch.block_table
        self.batch = replace(batch, block_table=table, **{name: getattr(batch, name).copy() for name in _INPUTS})
        with recording() as tape:
            self.logits = forward(self.batch, kv_cache, states)
        self._calls = np.concatenate([call for call, _ in tape])
        self._arrays = [arguments for _, arguments in tape]             # the calls hold their addresses

    def again(self, batch) -> np.ndarray:
        for name in _INPUTS:
            getattr(self.batch, name)[...] = getattr(batch, name)
        self.batch.block_table[:, : batch.block_table.shape[1]] = batch.block_table
        launch(self._calls, len(self._arrays))
        return self.logits
