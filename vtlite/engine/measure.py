"""How fast an engine is: closed loops of random prompts, the bytes that a decode step must move, and what they take at least."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, is_dataclass
from math import prod

import numpy as np

from vtlite import tap
from vtlite.engine.device import cpu_threads
from vtlite.engine.engine import Engine
from vtlite.engine.host_memory import available_bytes
from vtlite.engine.sampling_params import SamplingParams

COPIED_AT_ONCE = 256 << 20
TIMED_STEPS = 10


@dataclass
class Run:
    """Times of one closed loop, in seconds."""

    num_input_tokens: int
    num_output_tokens: int
    seconds: float
    first_token: list[float] = field(default_factory=list)          # per request, since it was added
    per_token: list[float] = field(default_factory=list)            # per request: the mean of its tokens after the first
    decode_steps: list[float] = field(default_factory=list)         # steps in which `concurrency` requests each got one more token
    contexts: list[int] = field(default_factory=list)               # of those steps: tokens that their requests attend to, all together


def closed_loop(engine: Engine, input_len: int, output_len: int, concurrency: int, num_requests: int, seed: int = 0) -> Run:
    """`concurrency` clients, each of whom asks again when its answer is complete, `num_requests` times in all."""
    rng, scheduler = np.random.default_rng(seed), engine.loop.scheduler
    params = SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True)
    prompts = rng.integers(0, engine.model_config.vocab_size, (num_requests, input_len)).tolist()
    asked, started, first, last, count, run = 0, {}, {}, {}, {}, Run(0, 0, 0.0)
    begin = time.perf_counter()
    while asked < num_requests or engine.has_work:
        while asked < num_requests and len(started) - len(last) < concurrency:
            started[str(asked)] = time.perf_counter()
            engine.add(str(asked), prompts[asked], params)
            asked += 1
        requests = scheduler.running
        decodes = len(requests) == concurrency and not scheduler.waiting and all(r.num_output_tokens for r in requests)
        context = sum(r.num_tokens for r in requests)
        before = time.perf_counter()
        deltas = engine.step()
        now = time.perf_counter()
        if decodes:
            run.decode_steps.append(now - before)
            run.contexts.append(context)
        for delta in deltas:
            first.setdefault(delta.request_id, now)
            count[delta.request_id] = count.get(delta.request_id, 0) + 1
            if delta.finish_reason is not None:
                last[delta.request_id] = now
    run.seconds = time.perf_counter() - begin
    run.num_input_tokens, run.num_output_tokens = num_requests * input_len, sum(count.values())
    run.first_token = [first[i] - started[i] for i in first]
    run.per_token = [(last[i] - first[i]) / (count[i] - 1) for i in last if count[i] > 1]
    return run


def rows(engine: Engine, done: Run, input_len: int, output_len: int, concurrency: int, ceiling: float | None = None) -> list[dict]:
    """What a closed loop showed, in the schema that every bench writes: its decode step and its tokens per second.

    `ceiling` is copy_bytes_per_second of the same process, measured here if it is None.
    """
    step = statistics.median(done.decode_steps)
    num_bytes = step_bytes(engine.model, concurrency, statistics.mean(done.contexts) / concurrency)
    ceiling = ceiling or copy_bytes_per_second(engine.device)
    case = f"{engine.directory.name}, {input_len} in, {output_len} out, concurrency {concurrency}"
    return [{"name": "step.decode", "case": case, "us": step * 1e6, "bytes": num_bytes, "share": num_bytes / ceiling / step, "ok": True,
             "ceiling_tbps": ceiling / 1e12, "floor_us": num_bytes / ceiling * 1e6},
            {"name": "serve.closed_loop", "case": case, "us": done.seconds * 1e6, "ok": True,
             "output_tokens_per_second": done.num_output_tokens / done.seconds,
             "total_tokens_per_second": (done.num_input_tokens + done.num_output_tokens) / done.seconds,
             "first_token_us": statistics.mean(done.first_token) * 1e6, "per_token_us": statistics.mean(done.per_token) * 1e6}]


def step_bytes(model, num_seqs: int, context: float) -> int:
    """What a decode step of `num_seqs` sequences with `context` tokens each reads and writes at least.

    Every weight once (of an embedding that is not also the head nothing worth counting), the keys and values that each
    sequence attends to, and its recurrent state both ways.
    """
    weights = sum(array.nbytes for array in arrays_of(model))
    if model.lm_head is not model.embed_tokens:
        weights -= model.embed_tokens.nbytes
    num_layers, num_kv_heads, head_dim = model.kv_shape
    windows = getattr(model.config, "windows", [None] * num_layers)
    keys = sum(min(context, window or context) for window in windows)
    states = sum(prod(shape) * dtype.itemsize for layer in model.state_shapes for shape, dtype in layer)
    return int(weights + num_seqs * (keys * 2 * num_kv_heads * head_dim * model.dtype.itemsize + 2 * states))


def arrays_of(model) -> list:
    """The arrays that a model holds, each once."""
    found, todo = {}, list(vars(model).values())
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif is_dataclass(value):
            todo += [getattr(value, f.name) for f in fields(value)]
        elif hasattr(value, "nbytes"):
            found[id(value)] = value
    return list(found.values())


def copy_bytes_per_second(device) -> float:
    """The ceiling of what moves bytes: a copy, counting those read and written; of a GPU, or of this machine with all its cores."""
    if device is not None:
        from vtlite.cuda.timing import measure_ceilings
        return measure_ceilings(device).copy_tbps * 1e12
    threads, size = cpu_threads(), min(COPIED_AT_ONCE, available_bytes() // 8)
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        times = [_seconds(lambda: list(pool.map(lambda pair: np.copyto(*pair), parts))) for _ in range(8)]
    return 2 * size / min(times)


def step_by_part(engine: Engine, input_len: int, concurrency: int) -> tuple[float, list[tuple[str, float]]]:
    """Seconds of one decode step, and of its parts, which add up to it: kernels of a GPU, operations elsewhere."""
    params = SamplingParams(temperature=0, max_tokens=3 * TIMED_STEPS, ignore_eos=True)
    prompts = np.random.default_rng(1).integers(0, engine.model_config.vocab_size, (concurrency, input_len)).tolist()
    for i, prompt in enumerate(prompts):
        engine.add(f"part-{i}", prompt, params)
    try:
        while not all(r.num_output_tokens for r in engine.loop.scheduler.running) or engine.loop.scheduler.waiting:
            engine.step()
        engine.step()
        if engine.device is None:
            return _by_operation(engine)
        seconds = statistics.median(_seconds(engine.step) for _ in range(TIMED_STEPS))
        if engine.config.enforce_eager:
            return seconds, [("kernels launched one by one, and the host's work", seconds)]
        graph_seconds, parts = engine.loop.runner.time_decode_step()
        return seconds, [*parts, ("host, and copies to and from the device", max(0.0, seconds - graph_seconds))]   # what is not hidden
    finally:
        for i in range(concurrency):
            engine.abort(f"part-{i}")


def _by_operation(engine: Engine) -> tuple[float, list[tuple[str, float]]]:
    runner, model, ops = engine.loop.runner, engine.model, engine.model.ops
    timed = _TimedOps(ops)
    runner.ops = model.ops = timed
    try:
        with tap.collect(lambda name, array: None):               # the model itself, not a recording of it
            engine.step()
            timed.seconds.clear()
            seconds = statistics.mean(_seconds(engine.step) for _ in range(TIMED_STEPS))
    finally:
        runner.ops = model.ops = ops
    parts = [(name, total / TIMED_STEPS) for name, total in timed.seconds.items()]
    return seconds, [*parts, ("all else", seconds - sum(share for _, share in parts))]


class _TimedOps:
    """A wing whose operations are timed."""

    def __init__(self, ops):
        self._ops, self.seconds = ops, {}

    def __getattr__(self, name: str):
        operation = getattr(self._ops, name)

        def timed(*args, **options):
            begin = time.perf_counter()
            result = operation(*args, **options)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
            return result
        return timed


def _seconds(call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
