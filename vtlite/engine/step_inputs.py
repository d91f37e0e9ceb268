"""A step's inputs in one buffer at fixed places: one copy brings them to a device, and a recorded step finds them there."""

import math
from types import SimpleNamespace

import numpy as np

from vtlite.engine.batch import Batch

ALIGNMENT = 16


class Layout:
    """Arrays of given shapes and dtypes, one after another in one buffer of bytes, each at a multiple of 16."""

    def __init__(self, **arrays: tuple):
        self.nbytes, self._places = 0, {}
        for name, (shape, dtype) in arrays.items():
            start = -(-self.nbytes // ALIGNMENT) * ALIGNMENT
            self.nbytes = start + math.prod(shape) * np.dtype(dtype).itemsize
            self._places[name] = start, self.nbytes, shape, dtype

    def start_of(self, name: str) -> int:
        return self._places[name][0]

    def views(self, buffer) -> SimpleNamespace:
        """The arrays over a buffer of bytes [nbytes or more] u8: a NumPy array, or an array on a device."""
        return SimpleNamespace(**{name: buffer[start:end].view(dtype).reshape(*shape)
                                  for name, (start, end, shape, dtype) in self._places.items()})


class StepInputs:
    """Room for the inputs of a step with T tokens of S sequences, W blocks each, and L rows of logits. `host` are its arrays,
    named as in Batch; a step may fill less, the rest is padding that does no harm: token 0 of sequences without length, whose KV
    is not kept.

    `table` [L, columns] u32 and `values` [V] u32 say how each row of logits is drawn from (vtlite/cuda/sampling_rows.py).
    """

    def __init__(self, num_tokens: int, num_seqs: int, num_blocks: int, num_logits: int, table_columns: int, num_values: int):
        self.layout = Layout(
            input_ids=((num_tokens,), np.int64), positions=((num_tokens,), np.int64), slot_mapping=((num_tokens,), np.int64),
            logits_indices=((num_logits,), np.int64), query_start_loc=((num_seqs + 1,), np.int64), seq_lens=((num_seqs,), np.int64),
            state_slots=((num_seqs,), np.int64), token_rows=((num_seqs,), np.int32), table=((num_logits, table_columns), np.uint32),
            block_table=((num_seqs, num_blocks), np.int32), values=((num_values,), np.uint32))
        self.buffer = np.zeros(self.layout.nbytes, np.uint8)
        self.host = self.layout.views(self.buffer)
        self.host.token_rows[:] = np.arange(num_seqs)          # where the tokens of a decode step are
        self.num_bytes = 0                        # of the buffer that the last load filled

    def load(self, batch: Batch, table: np.ndarray, values: np.ndarray) -> None:
        """Take over a Batch. Fewer sequences than there is room for must all be of one token: a decode step."""
        host, tokens, seqs, logits = self.host, len(batch.input_ids), len(batch.seq_lens), len(batch.logits_indices)
        for name, count in (("input_ids", tokens), ("positions", tokens), ("slot_mapping", tokens), ("seq_lens", seqs),
                            ("state_slots", seqs), ("query_start_loc", seqs + 1), ("logits_indices", logits)):
            getattr(host, name)[:count] = getattr(batch, name)
        host.block_table[:seqs, : batch.block_table.shape[1]] = batch.block_table
        host.table[:logits], host.values[: len(values)] = table, values
        if seqs < len(host.seq_lens):
            host.input_ids[tokens:] = host.positions[tokens:] = host.state_slots[seqs:] = 0
            host.slot_mapping[tokens:], host.seq_lens[seqs:] = -1, 0
            host.query_start_loc[seqs:] = np.arange(seqs, len(host.query_start_loc))
            host.logits_indices[logits:] = np.arange(logits, len(host.logits_indices))
            host.block_table[seqs:] = 0
            host.table[logits:] = 0
        self.num_bytes = self.layout.start_of("values") + 4 * len(values)
