"""A step's work as flat arrays: what `build` makes of a Plan and `forward` consumes.

T query tokens of S sequences lie one sequence after another, with no padding.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ragged:
    """Rows of unequal length in one array: row i is values[start_loc[i] : start_loc[i + 1]]."""

    start_loc: np.ndarray        # [S + 1] i64
    values: np.ndarray

    def row(self, i: int) -> np.ndarray:
        return self.values[self.start_loc[i] : self.start_loc[i + 1]]

    @classmethod
    def of(cls, rows: list, dtype) -> "Ragged":
        start_loc = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=start_loc[1:])
        return cls(start_loc, np.fromiter((v for row in rows for v in row), dtype, start_loc[-1]))


@dataclass(frozen=True)
class SamplingBatch:
    """How each sampled row draws, as arrays; S is the number of sampled rows."""

    temperature: np.ndarray          # [S] f32, 0 = greedy
    top_k: np.ndarray                # [S] i32, 0 = off
    top_p: np.ndarray                # [S] f32
    min_p: np.ndarray                # [S] f32
    repetition_penalty: np.ndarray   # [S] f32
    frequency_penalty: np.ndarray    # [S] f32
    presence_penalty: np.ndarray     # [S] f32
    seeds: np.ndarray                # [S] u64
    positions: np.ndarray            # [S] i64, where in its sequence the drawn token will stand
    prompt_ids: Ragged               # filled only for rows with a repetition penalty
    output_ids: Ragged               # filled only for rows with any penalty
    allowed: Ragged                  # empty row = every id allowed
    bias_ids: Ragged                 # i64; -inf biases forbid an id
    bias_values: Ragged              # f32
    num_logprobs: int                # largest N asked for, or -1


@dataclass(frozen=True)
class Batch:
    """Inputs of one forward pass."""

    input_ids: np.ndarray            # [T] i64
    positions: np.ndarray            # [T] i64
    query_start_loc: np.ndarray      # [S + 1] i64
    seq_lens: np.ndarray             # [S] i64: tokens whose KV exists after this step
    block_table: np.ndarray          # [S, blocks] i32
    slot_mapping: np.ndarray         # [T] i64: block * block_size + row
    logits_indices: np.ndarray       # [L] i64 rows of T whose logits are needed
