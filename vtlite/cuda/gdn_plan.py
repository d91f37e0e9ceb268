"""A step's prompt tokens as chunks: tables that the kernels of a gated delta net find their rows, slots and neighbours in.

A prompt is cut at the positions 0, 64, 128, ... of its sequence, wherever steps cut it; a step that computes a part of it must
begin at one of them. Generated tokens are not here: gdn_decode.py computes them one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vtlite.errors import DeviceError

CHUNK = 64


@dataclass(frozen=True)
class ChunkPlan:
    """P prompt parts with N chunks in all; arrays on the host or on a device.

    sequences [P, 4] i32: first row, number of rows, state slot, first chunk.
    chunks    [N, 2] i32: prompt part, and the slot that receives the states after this chunk as well, or -1.
    """

    sequences: np.ndarray
    chunks: np.ndarray

    def on(self, device) -> "ChunkPlan":
        return ChunkPlan(device.array(self.sequences), device.array(self.chunks))


def plan_chunks(query_start_loc: np.ndarray, seq_lens: np.ndarray, state_slots: np.ndarray, parts: np.ndarray,
                saved: Mapping[tuple[int, int], int] | None = None) -> ChunkPlan:
    """The chunks of the sequences numbered in `parts`, those of a Batch whose tokens belong to their prompts.

    saved: (sequence, position) -> slot for the states that are to be kept as they are after that many tokens, a multiple of 64.
    """
    saved, sequences, chunks = dict(saved or {}), [], []
    for part, s in enumerate(parts):
        first, last = int(query_start_loc[s]), int(query_start_loc[s + 1])
        position = int(seq_lens[s]) - (last - first)
        if position % CHUNK:
            raise DeviceError(f"sequence {s} of the step computes its prompt from position {position} on; a prompt with gated delta "
                              f"nets is cut at multiples of {CHUNK}")
        sequences.append((first, last - first, int(state_slots[s]), len(chunks)))
        for end in range(position + CHUNK, position + (last - first) + CHUNK, CHUNK):
            chunks.append((part, saved.pop((int(s), end), -1) if end <= seq_lens[s] else -1))
    if saved:
        (s, position), slot = next(iter(saved.items()))
        raise DeviceError(f"the states of sequence {s} after {position} tokens are to be kept in slot {slot}, but no chunk of the step "
                          f"ends there")
    return ChunkPlan(np.array(sequences, np.int32).reshape(-1, 4), np.array(chunks, np.int32).reshape(-1, 2))
