"""A step's work as flat arrays: what `build` makes of a Plan and `forward` consumes.

T query tokens of S sequences lie one sequence after another, with no padding.
"""

from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from vtlite.engine.request import Request
from vtlite.engine.scheduler import Plan


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
        if not any(len(row) for row in rows):
            return cls(start_loc, np.zeros(0, dtype))
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
    """Inputs of one forward pass and what to do with its logits."""

    input_ids: np.ndarray            # [T] i64
    positions: np.ndarray            # [T] i64
    query_start_loc: np.ndarray      # [S + 1] i64
    seq_lens: np.ndarray             # [S] i64: tokens whose KV exists after this step
    block_table: np.ndarray          # [S, blocks] i32, padded with the null block 0
    slot_mapping: np.ndarray         # [T] i64: block * block_size + row
    state_slots: np.ndarray          # [S] i64: where each sequence's recurrent state lies
    is_generated: np.ndarray         # [S] bool: whose tokens of this step come after its prompt
    logits_indices: np.ndarray       # [L] i64: rows of T whose logits are needed, ascending
    sample_indices: np.ndarray       # [S'] i64: rows of L from which a token is drawn
    sampling: SamplingBatch          # of S' rows
    prompt_indices: np.ndarray       # [P] i64: rows of L whose prompt logprobs are wanted
    prompt_targets: np.ndarray       # [P] i64: the prompt token that follows each
    num_prompt_logprobs: int         # largest N asked for, or -1
    sampled: list[Request]           # the S' requests that draw, in row order
    prompt_rows: list[tuple[Request, int]]   # request and number of its rows among the P, in order


def build(plan: Plan, block_size: int) -> Batch:
    """Flatten a Plan. A request draws in this step iff the step reaches its newest token."""
    requests = list(plan.scheduled)
    lengths = np.array(list(plan.scheduled.values()), np.int64)
    ends = np.array([r.num_computed_tokens for r in requests], np.int64)
    query_start_loc = np.concatenate([[0], np.cumsum(lengths)])
    row_request = np.repeat(np.arange(len(requests)), lengths)                        # [T]
    positions = np.arange(query_start_loc[-1]) + np.repeat(ends - query_start_loc[1:], lengths)
    block_table = np.zeros((len(requests), max(len(r.block_ids) for r in requests)), np.int32)
    for i, r in enumerate(requests):
        block_table[i, : len(r.block_ids)] = r.block_ids
    input_ids = [t for r, n in plan.scheduled.items() for t in r.token_ids[r.num_computed_tokens - n : r.num_computed_tokens]]

    logits_rows, sample_indices, sampled, prompt_indices, prompt_targets, prompt_rows = [], [], [], [], [], []
    for start, (r, n) in zip(query_start_loc, plan.scheduled.items()):
        if r.params.prompt_logprobs is not None:
            first = r.num_computed_tokens - n
            targets = r.token_ids[first + 1 : min(r.num_computed_tokens + 1, r.prompt_len)]
            if targets:
                prompt_indices += range(len(logits_rows), len(logits_rows) + len(targets))
                prompt_targets += targets
                prompt_rows.append((r, len(targets)))
                logits_rows += range(start, start + len(targets))
        if r.num_computed_tokens == r.num_tokens:
            sample_indices.append(len(logits_rows))
            sampled.append(r)
            logits_rows.append(start + n - 1)
    return Batch(
        input_ids=np.array(input_ids, np.int64),
        positions=positions,
        query_start_loc=query_start_loc,
        seq_lens=ends,
        block_table=block_table,
        slot_mapping=block_table[row_request, positions // block_size].astype(np.int64) * block_size + positions % block_size,
        state_slots=np.array([r.state_slot for r in requests], np.int64),
        is_generated=ends > [r.prompt_len for r in requests],
        logits_indices=np.array(logits_rows, np.int64),
        sample_indices=np.array(sample_indices, np.int64),
        sampling=_sampling(sampled),
        prompt_indices=np.array(prompt_indices, np.int64),
        prompt_targets=np.array(prompt_targets, np.int64),
        num_prompt_logprobs=max((r.params.prompt_logprobs for r, _ in prompt_rows), default=-1),
        sampled=sampled,
        prompt_rows=prompt_rows,
    )


def following(batch: Batch, block_size: int) -> Batch:
    """The decode step after one in which each request got its next token, before those tokens are known: input_ids are as they
    were. Each request has a block for its next position."""
    positions, table = batch.positions + 1, batch.block_table
    entered = np.flatnonzero(positions % block_size == 0)                      # whose token is the first of a block
    if len(entered):
        width = max(table.shape[1], int(positions.max()) // block_size + 1)
        table = np.zeros((len(table), width), table.dtype)
        table[:, : batch.block_table.shape[1]] = batch.block_table
        for i in entered:
            table[i, positions[i] // block_size] = batch.sampled[i].block_ids[positions[i] // block_size]
    slots = table[np.arange(len(table)), positions // block_size].astype(np.int64) * block_size + positions % block_size
    return replace(batch, input_ids=batch.input_ids.copy(), positions=positions, seq_lens=batch.seq_lens + 1, block_table=table,
                   slot_mapping=slots, sampling=replace(batch.sampling, positions=batch.sampling.positions + 1))


def with_prompt_rows(batch: Batch) -> SamplingBatch:
    """How each of the L rows of logits draws, if the rows whose prompt logprobs are wanted draw as well: greedily, from one
    allowed id, the prompt token that follows. So a sampler that reports logprobs of what it draws reports theirs."""
    if not len(batch.prompt_indices):
        return batch.sampling
    size, rows = len(batch.logits_indices), {index: i for i, index in enumerate(batch.sample_indices)}
    neutral = {"top_p": 1, "repetition_penalty": 1}

    def spread(name: str, values):
        if isinstance(values, Ragged):
            return Ragged.of([values.row(rows[i]) if i in rows else () for i in range(size)], values.values.dtype)
        everything = np.full(size, neutral.get(name, 0), values.dtype)
        everything[batch.sample_indices] = values
        return everything

    columns = {f.name: spread(f.name, getattr(batch.sampling, f.name)) for f in fields(SamplingBatch) if f.name != "num_logprobs"}
    targets = dict(zip(batch.prompt_indices, batch.prompt_targets))
    columns["allowed"] = Ragged.of([[targets[i]] if i in targets else columns["allowed"].row(i) for i in range(size)], np.int64)
    return SamplingBatch(**columns, num_logprobs=max(batch.sampling.num_logprobs, batch.num_prompt_logprobs))


def _sampling(requests: list[Request]) -> SamplingBatch:
    penalised = [p.repetition_penalty != 1 or p.frequency_penalty != 0 or p.presence_penalty != 0 for p in (r.params for r in requests)]
    biases = [_biases(r) for r in requests]
    return SamplingBatch(
        positions=np.array([r.num_tokens for r in requests], np.int64),
        prompt_ids=Ragged.of([r.token_ids[: r.prompt_len] if r.params.repetition_penalty != 1 else () for r in requests], np.int64),
        output_ids=Ragged.of([r.output_token_ids if p else () for r, p in zip(requests, penalised)], np.int64),
        bias_ids=Ragged.of([list(b) for b in biases], np.int64),
        bias_values=Ragged.of([list(b.values()) for b in biases], np.float32),
        **_unchanging(tuple(requests)),
    )


@lru_cache(maxsize=2)
def _unchanging(requests: tuple[Request, ...]) -> dict:
    """The columns of a SamplingBatch that are the same in every step of these requests."""
    params = [r.params for r in requests]

    def column(name: str, dtype=np.float32) -> np.ndarray:
        return np.array([getattr(p, name) for p in params], dtype)

    return dict(
        temperature=np.array([0 if p.greedy else p.temperature for p in params], np.float32),
        top_k=np.maximum(column("top_k", np.int32), 0),
        top_p=column("top_p"),
        min_p=column("min_p"),
        repetition_penalty=column("repetition_penalty"),
        frequency_penalty=column("frequency_penalty"),
        presence_penalty=column("presence_penalty"),
        seeds=np.array([r.seed for r in requests], np.uint64),
        allowed=Ragged.of([p.allowed_token_ids or () for p in params], np.int64),
        num_logprobs=max((p.logprobs for p in params if p.logprobs is not None), default=-1),
    )


def _biases(request: Request) -> dict[int, float]:
    return {**(request.params.logit_bias or {}), **dict.fromkeys(request.forbidden_ids(), -np.inf)}
