"""Which kernels a model launches on a GPU: found by running steps of it on a device that only takes notes."""

from pathlib import Path

import numpy as np

from vtlite.config import EngineConfig
from vtlite.cuda.device import using
from vtlite.cuda.kernel import Specialized
from vtlite.cuda.recorder import Recorder
from vtlite.engine.batch import Batch, Ragged, SamplingBatch
from vtlite.engine.engine import Engine

DECODED = (1, 4, 9, 17, 33, 65, 200)             # sequences of a decode step
PREFILLED = ((1, 20), (1, 65), (1, 300), (1, 1000), (8, 100))            # sequences, tokens of each
LONGEST = 4096


def launched_by_model(directory: Path) -> list[Specialized]:
    """What steps of a checkpoint's model launch on a GPU, of one sequence and of many, long and short, with recurrent states of
    either type. Only config.json is read."""
    recorder = Recorder()
    with using(recorder):
        engine = _follow_steps(directory, "float32")
        if engine.model.state_shapes:
            _follow_steps(directory, "bfloat16")
    return recorder.launched


def _follow_steps(directory: Path, state_dtype: str) -> Engine:
    engine = Engine(directory, EngineConfig(device="cuda", load_format="dummy", max_num_seqs=max(DECODED), num_blocks=512,
                                            enable_prefix_caching=False, mamba_ssm_cache_dtype=state_dtype))
    longest = min(engine.max_model_len, LONGEST)
    steps = [(seqs, 1, context) for seqs in DECODED for context in (100, longest)]
    steps += [(seqs, tokens, tokens) for seqs, tokens in PREFILLED if tokens <= longest]
    runner = engine.loop.runner
    runner._restore_kv([1], runner._kv_of([1]))                        # what a preempted request goes through
    for seqs, tokens, context in steps:
        for num_logprobs in (-1, 5):
            runner.forward(_batch(seqs, tokens, context, engine.config.block_size, num_logprobs))
    return engine


def _batch(seqs: int, tokens: int, context: int, block_size: int, num_logprobs: int) -> Batch:
    """A step of sequences that are all alike: prompts, or one token each after a context."""
    rows, none, starts = np.arange(seqs), Ragged.of([[]] * seqs, np.int64), np.arange(seqs + 1) * tokens
    numbers = {name: np.zeros(seqs, np.float32) for name in ("temperature", "min_p", "frequency_penalty", "presence_penalty")}
    ones = {name: np.ones(seqs, np.float32) for name in ("top_p", "repetition_penalty")}
    sampling = SamplingBatch(**numbers, **ones, top_k=np.zeros(seqs, np.int32), seeds=np.zeros(seqs, np.uint64), positions=rows,
                             prompt_ids=none, output_ids=none, allowed=none, bias_ids=none,
                             bias_values=Ragged.of([[]] * seqs, np.float32), num_logprobs=num_logprobs)
    nothing = np.zeros(0, np.int64)
    return Batch(input_ids=np.zeros(seqs * tokens, np.int64), positions=np.tile(np.arange(context - tokens, context), seqs),
                 query_start_loc=starts, seq_lens=np.full(seqs, context), block_table=np.zeros((seqs, -(-context // block_size)), np.int32),
                 slot_mapping=np.zeros(seqs * tokens, np.int64), state_slots=1 + rows, is_generated=np.full(seqs, tokens == 1),
                 logits_indices=starts[1:] - 1, sample_indices=rows, sampling=sampling, prompt_indices=nothing, prompt_targets=nothing,
                 num_prompt_logprobs=-1, sampled=[object() for _ in rows], prompt_rows=[])
