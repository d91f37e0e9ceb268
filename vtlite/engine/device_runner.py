"""The Runner for a device: weights, KV blocks and states lie there, and a step is one upload, one run and the download of its results.

A decode step (every sequence has one generated token to compute) is recorded as a graph the first time a bucket of its sizes
is met, and replayed from then on; all others are launched kernel by kernel. Sampling is part of either. What a token gets
does not depend on which it was, nor on the bucket. A step can be launched before the results of the last one are read.
"""

import statistics
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from vtlite import tap
from vtlite.config import EngineConfig
from vtlite.cuda.embed import check_ids, fill_drawn
from vtlite.cuda.gdn_plan import StepPlan, plan_step
from vtlite.cuda.sampling import sample_rows
from vtlite.cuda.sampling_rows import COLUMNS, pack
from vtlite.engine.batch import Batch, with_prompt_rows
from vtlite.engine.device import Wing
from vtlite.engine.moves import Caches
from vtlite.engine.request import Request
from vtlite.engine.runner import StepResult
from vtlite.engine.scheduler import Plan
from vtlite.engine.step_inputs import Layout, StepInputs
from vtlite.reference import Samples

SHORTEST_CONTEXT = 256           # of a bucket; the others are powers of two above it
FEWEST_VALUES = 64
TOP_LOGPROBS = (-1, 0, 1, 5, 20)
SAMPLED_AT_ONCE = 256            # rows: bounds the sampler's workspace


class DecodeStep:
    """The graph of a decode step and where its inputs lie."""

    def __init__(self, inputs: StepInputs, buffer):
        self.inputs, self.buffer, self.graph = inputs, buffer, None


class Launched(NamedTuple):
    """A step on its way."""

    batch: Batch
    layout: Layout                   # of the results
    results: Any                     # downloads
    faults: Any


class DeviceRunner(Caches):
    """Runs `model` on the device of its wing: see Runner, whose face it has. A step has up to `max_rows` rows of logits."""

    def __init__(self, model, wing: Wing, config: EngineConfig, num_blocks: int, num_slots: int, max_rows: int, max_model_len: int):
        super().__init__()
        num_layers, num_kv_heads, head_dim = model.kv_shape
        block_size, device = config.block_size, wing.device
        self.model, self.ops, self.device, self.block_size = model, wing.ops, device, block_size
        self.kv_cache = [device.zeros((2, num_blocks, block_size, num_kv_heads, head_dim), model.dtype) for _ in range(num_layers)]
        self.states = [[device.zeros((num_slots, *shape), dtype) for shape, dtype in layer] for layer in model.state_shapes]
        self._state_arrays = [array for layer in self.states for array in layer]
        self._max_model_len, self._enforce_eager = max_model_len, config.enforce_eager
        self._most_logprobs = min(config.max_logprobs, model.config.vocab_size)
        rows = _bucket_of(max_rows)
        self._results = device.zeros((_results(rows, self._most_logprobs).nbytes,), np.uint8)
        self._drawn = _results(rows, 0).views(self._results).token_ids
        self._drawn_rows: dict[Request, int] = {}                # who drew in the last step, and in which of its rows
        self._decode_steps: dict[tuple, DecodeStep] = {}
        self._last_key: tuple | None = None                      # of the last decode step

    # caches

    def move(self, plan: Plan) -> None:
        self.device.make_current()                               # servers step in a thread of their own
        with self.device.step():
            super().move(plan)

    def _state_of(self, slot: int) -> list[np.ndarray]:
        return [array[slot].numpy() for array in self._state_arrays]

    def _restore_state(self, slot: int, kept: list[np.ndarray]) -> None:
        for array, state in zip(self._state_arrays, kept):
            array[slot].copy_from(state)

    def _reset_state(self, slot: int) -> None:
        for array in self._state_arrays:
            array[slot].fill(0)

    def _copy_state(self, source: int, target: int) -> None:
        for array in self._state_arrays:
            array[target].copy_from(array[source])

    def _kv_of(self, blocks: list[int]) -> list[np.ndarray]:
        """What these blocks hold: for each layer [2, blocks, block_size, Hkv, D] on the host."""
        num_blocks = self.kv_cache[0].shape[1]
        rows = self.device.array(np.concatenate([np.array(blocks, np.int64), np.array(blocks, np.int64) + num_blocks]))
        return [self.ops.gather_rows(kv.reshape(2 * num_blocks, -1), rows).numpy().reshape(2, len(blocks), *kv.shape[2:])
                for kv in self.kv_cache]

    def _restore_kv(self, blocks: list[int], kept: list[np.ndarray]) -> None:
        slots = np.array(blocks, np.int64)[:, None] * self.block_size + np.arange(self.block_size)
        slot_mapping = self.device.array(slots.reshape(-1))
        for kv, (k, v) in zip(self.kv_cache, kept):
            shape = slots.size, *kv.shape[3:]
            self.ops.write_kv(kv, self.device.array(k.reshape(shape)), self.device.array(v.reshape(shape)), slot_mapping)

    # steps

    def forward(self, batch: Batch) -> StepResult:
        return self.read(self.launch(batch))

    def launch(self, batch: Batch) -> "Launched":
        """Queue a step and the download of its results. Tokens that the step launched before draws need not be known yet."""
        self.device.make_current()
        sampling = with_prompt_rows(batch)
        table, values = pack(sampling, self.model.config.vocab_size)
        self._refer_to_drawn(batch)
        num_rows, num_logprobs = len(batch.logits_indices), min(sampling.num_logprobs, self._most_logprobs)
        key = self._bucket(batch, num_logprobs, len(values))
        if key is None:
            with self.device.step():
                inputs = StepInputs(len(batch.input_ids), len(batch.seq_lens), batch.block_table.shape[1], num_rows, COLUMNS, len(values))
                inputs.load(batch, table, values)
                self._run(inputs, self.device.array(inputs.buffer), num_logprobs, batch.is_generated)
        else:
            num_rows, num_logprobs = key[0], key[2]
            self._decode(key, batch, table, values)
        layout = _results(num_rows, max(num_logprobs, 0))
        return Launched(batch, layout, self.device.start_download(self._results[: layout.nbytes]),
                        self.device.start_download(self.device.faults))

    def _refer_to_drawn(self, batch: Batch) -> None:
        """Tokens that the last step drew are taken from where it left them on the device."""
        for request, index in zip(batch.sampled, batch.sample_indices):
            row = self._drawn_rows.get(request)
            if row is not None:
                batch.input_ids[batch.logits_indices[index]] = -1 - row
        self._drawn_rows = {request: int(index) for request, index in zip(batch.sampled, batch.sample_indices)}

    def is_decode(self, batch: Batch) -> bool:
        """Whether a step is the replay of a graph, or will be."""
        num_seqs = len(batch.seq_lens)
        return bool(not self._enforce_eager and not tap.is_open() and batch.is_generated.all()
                    and num_seqs == len(batch.sampled) == len(batch.input_ids) == len(batch.logits_indices))

    def _bucket(self, batch: Batch, num_logprobs: int, num_values: int) -> tuple | None:
        """(sequences, context, logprobs, values) of the graph that fits a decode step; None if the step is none."""
        if not self.is_decode(batch):
            return None
        context = min(max(_power_of_two(int(batch.seq_lens.max())), SHORTEST_CONTEXT), self._max_model_len)
        top = next((n for n in TOP_LOGPROBS if n >= num_logprobs), num_logprobs)
        return _bucket_of(len(batch.seq_lens)), context, min(top, self._most_logprobs), max(_power_of_two(num_values), FEWEST_VALUES)

    def _decode(self, key: tuple, batch: Batch, table: np.ndarray, values: np.ndarray) -> None:
        num_seqs, context, num_logprobs, num_values = self._last_key = key
        step = self._decode_steps.get(key)
        if step is None:
            inputs = StepInputs(num_seqs, num_seqs, -(-context // self.block_size), num_seqs, COLUMNS, num_values)
            step = self._decode_steps[key] = DecodeStep(inputs, self.device.zeros((inputs.layout.nbytes,), np.uint8))
        inputs = step.inputs
        inputs.load(batch, table, values)
        step.buffer[: inputs.num_bytes].copy_from(inputs.buffer[: inputs.num_bytes])
        if step.graph is not None:
            step.graph.replay()
            return
        with self.device.step():
            self._run(inputs, step.buffer, num_logprobs)                           # kernels load here, not in the graph
        with self.device.step(), self.device.capture() as step.graph:
            self._run(inputs, step.buffer, num_logprobs)

    def _run(self, inputs: StepInputs, buffer, num_logprobs: int, is_generated: np.ndarray | None = None) -> None:
        """Model and sampler over the inputs in `buffer`; what is drawn goes to the results. `is_generated` [S] is None in a
        decode step, where all are."""
        arrays, host = inputs.layout.views(buffer), inputs.host
        delta_net = StepPlan(arrays.token_rows, arrays.state_slots, None)
        if self.states and is_generated is not None:
            delta_net = plan_step(host.query_start_loc, host.seq_lens, host.state_slots, is_generated).on(self.device)
        batch = SimpleNamespace(**vars(arrays), delta_net=delta_net, is_decode=False)              # the plan says it all
        fill_drawn(batch.input_ids, self._drawn)
        logits = self.model.forward(batch, self.kv_cache, self.states)
        rows, top = len(logits), max(num_logprobs, 0)
        results = vars(_results(rows, top).views(self._results))
        for first in range(0, rows, SAMPLED_AT_ONCE):
            part = slice(first, min(first + SAMPLED_AT_ONCE, rows))
            out = Samples(**{name: array[part] for name, array in results.items()})
            sample_rows(logits[part], batch.table[part], batch.values, num_logprobs, out=out)

    def read(self, step: "Launched") -> StepResult:
        """Wait for a launched step: its results, on the host."""
        everything = Samples(**vars(step.layout.views(step.results.wait())))
        check_ids(int(step.faults.wait().view(np.uint32)[0]))
        batch = step.batch
        samples = Samples(*(array[batch.sample_indices] for array in everything))
        prompt = tuple(array[batch.prompt_indices] for array in everything[2:]) if len(batch.prompt_indices) else None
        return StepResult(samples, prompt)

    def time_decode_step(self, repeats: int = 20) -> tuple[float, list[tuple[str, float]]]:
        """Seconds of the last decode step's graph on the device, and of its kernels by name, which add up to it.

        They are timed in a second graph, with an event after each launch. What the events cost is shared evenly.
        States of sequences move on at each repetition, so nothing of the requests in it can be used afterwards.
        """
        step, num_logprobs = self._decode_steps[self._last_key], self._last_key[2]
        total = statistics.median(self.device.elapsed_us(step.graph.replay) for _ in range(repeats))
        with self.device.step(), self.device.timeline() as timeline, self.device.capture() as graph:
            timeline.start()
            self._run(step.inputs, step.buffer, num_logprobs)
        runs = []
        for _ in range(repeats):
            graph.replay()
            runs.append(timeline.read())
        times = [statistics.median(us) for us in zip(*([us for _, us in run] for run in runs))]
        cost, kernels = max(0.0, (sum(times) - total) / len(times)), {}
        for (name, _), us in zip(runs[0], times):
            kernels[name] = kernels.get(name, 0.0) + max(0.0, us - cost)
        kernels["between kernels"] = total - sum(kernels.values())
        return total / 1e6, [(name, us / 1e6) for name, us in kernels.items()]


def _results(rows: int, top: int) -> Layout:
    """Where the Samples of a step lie. Token ids come first: they are at one address in every step."""
    return Layout(token_ids=((rows,), np.int64), ranks=((rows,), np.int64), logprobs=((rows,), np.float32), valid=((rows,), np.uint8),
                  top_ids=((rows, top), np.int64), top_logprobs=((rows, top), np.float32))


def _bucket_of(num_seqs: int) -> int:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, ...: the least of these that is not smaller."""
    size = _power_of_two(num_seqs)
    return 3 * size // 4 if size >= 4 and num_seqs <= 3 * size // 4 else size


def _power_of_two(n: int) -> int:
    """The least power of two that is not smaller than n >= 1."""
    return 1 << (n - 1).bit_length()
