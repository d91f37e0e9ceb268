"""A step's prompt tokens as chunks: tables that the kernels of a gated delta net find their rows, slots and neighbours in.

A prompt is cut at the positions 0, 64, 128, ... of its sequence, wherever steps cut it; a step that computes a part of it must
begin at one of them. Generated tokens are not here: gdn_decode.py computes them one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

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
            raise DeviceError(f"sequence {s} of the step computes its prompt from position {position} on; a prompt with gated "
                              f"delta nets is cut at multiples of {CHUNK}")
        sequences.append((first, last - first, int(state_slots[s]), len(chunks)))
        for end in range(position + CHUNK, position + (last - first) + CHUNK, CHUNK):
            chunks.append((part, saved.pop((int(s), end), -1) if end <= seq_lens[s] else -1))
    if saved:
        (s, position), slot = next(iter(saved.items()))
        raise DeviceError(f"the states of sequence {s} after {position} tokens are to be kept in slot {slot}, but no chunk of the "
                          f"step ends there")
    return ChunkPlan(np.array(sequences, np.int32).reshape(-1, 4), np.array(chunks, np.int32).reshape(-1, 2))


class StepPlan(NamedTuple):
    """What a step has for gated delta nets: generated tokens, and parts of prompts."""

    token_rows: np.ndarray | None            # [G] i32, the rows of generated tokens; None if there are none
    state_slots: np.ndarray | None           # [G] i64
    chunks: ChunkPlan | None

    def on(self, device) -> "StepPlan":
        return StepPlan(*(x if x is None else x.on(device) if isinstance(x, ChunkPlan) else device.array(x) for x in self))


def plan_step(query_start_loc: np.ndarray, seq_lens: np.ndarray, state_slots: np.ndarray, is_generated: np.ndarray,
              saved: Mapping[tuple[int, int], int] | None = None) -> StepPlan:
    """is_generated [S] bool: whose single token of this step comes after its prompt. The rest as for plan_chunks."""
    generated, parts = np.flatnonzero(is_generated), np.flatnonzero(~np.asarray(is_generated, bool))
    if (np.diff(query_start_loc)[generated] != 1).any():
        raise DeviceError("a step computes one generated token of a sequence; gated delta nets replay several in as many steps")
    rows, slots = query_start_loc[generated].astype(np.int32), state_slots[generated].astype(np.int64)
    return StepPlan(*((rows, slots) if len(rows) else (None, None)),
                    plan_chunks(query_start_loc, seq_lens, state_slots, parts, saved) if len(parts) else None)
