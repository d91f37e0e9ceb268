"""Whole models on a GPU: a decode step beside its floor, closed loops, the host's share, and the time to a first token.

    python -m bench.models --out bench/results/h200-models.json [--shape qwen3-8b ...] [--concurrency 1 16 32] [--cublas]

Shapes are the folders of bench/shapes (config.json as published); weights are drawn at random on the device. Each shape runs in
a process of its own. Rows: start.first_token (a new process, from its start to a token), step.decode (32 tokens in) with its
parts by kernel and step.host (a step less its graph), serve.closed_loop (1,024 in, 128 out) and prefill (8,192 tokens, one
request). With --cublas the last two by the extra `cublas`, serve.closed_loop.cublas and prefill.cublas; without it our kernels
do all. `peer` is vLLM 0.25 on another H200, its figures from VLLM.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from bench import gpu_checks
from vtlite.cuda import device
from vtlite.cuda.timing import measure_ceilings
from vtlite.engine import measure
from vtlite.engine.llm import LLM

SHAPES = Path(__file__).parent / "shapes"
SEQS, CONTEXT, LONG = 32, 8448, 8192
OPTIONS = {"device": "cuda", "load_format": "dummy", "max_num_seqs": SEQS, "max_model_len": CONTEXT, "enable_prefix_caching": False}
PROMPTS = {1: 4, 16: 64, 32: 96}                 # of a closed loop, by concurrency
VLLM = {                                         # ms of a decode step; output tokens/s by concurrency; measured 2026-11-29
    "qwen3-8b": (5.02, {1: 188, 16: 1856, 32: 2577}),
    "qwen3.5-4b": (3.63, {1: 235, 16: 2303, 32: 3193}),
    "qwen3.6-27b": (14.86, {1: 64, 16: 588, 32: 815}),
}
FIRST_TOKEN = """
from vtlite.engine.llm import LLM
from vtlite.engine.sampling_params import SamplingParams
llm = LLM({directory!r}, **{options!r})
print(len(llm.generate([[1, 2, 3, 4]], SamplingParams(temperature=0, max_tokens=1, ignore_eos=True))[0].outputs[0].token_ids))
"""


def first_token(shape: str) -> dict:
    """Wall-clock time of a new process that loads the model and gives one token."""
    code = FIRST_TOKEN.format(directory=str(SHAPES / shape), options=OPTIONS)
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=gpu_checks.ROOT)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return {"name": "start.first_token", "case": shape, "us": round(seconds * 1e6), "ok": done.stdout.strip() == "1"}


def decode_rows(engine, shape: str, concurrency: int, ceiling: float) -> list[dict]:
    """One wave of short prompts, then the step by kernel."""
    measure.closed_loop(engine, 32, 8, concurrency, concurrency, seed=1)
    done = measure.closed_loop(engine, 32, 128, concurrency, concurrency)
    step = measure.rows(engine, done, 32, 128, concurrency, ceiling)[0]
    seconds, parts = measure.step_by_part(engine, 32, concurrency)
    host = dict(parts)["host, and copies to and from the device"]
    if concurrency == 1:
        peer = VLLM[shape][0] * 1e3
        step |= {"peer": "vLLM", "peer_us": peer, "ratio": peer / step["us"]}
    return [step, {"name": "step.host", "case": step["case"], "us": host * 1e6, "ok": True},
            *({"name": "step.part", "case": f"{step['case']}: {name}", "us": part * 1e6, "ok": True} for name, part in parts)]


def loop_row(engine, shape: str, concurrency: int, ceiling: float) -> dict:
    measure.closed_loop(engine, 1024, 4, concurrency, concurrency, seed=1)
    done = measure.closed_loop(engine, 1024, 128, concurrency, PROMPTS[concurrency])
    row = measure.rows(engine, done, 1024, 128, concurrency, ceiling)[1]
    peer = VLLM[shape][1][concurrency]
    return row | {"peer": "vLLM", "peer_tokens_per_second": peer, "ratio": row["output_tokens_per_second"] / peer}


def prefill_row(engine, shape: str, matmul_tflops: float | None) -> dict:
    """One prompt of LONG tokens: the second of two, so that every kernel is loaded."""
    done = [measure.closed_loop(engine, LONG, 3, 1, 1, seed=seed) for seed in (1, 2)][-1]
    seconds, flops = done.first_token[0], prefill_flops(engine.model, LONG)
    share = {"share": flops / seconds / 1e12 / matmul_tflops} if matmul_tflops else {}
    return {"name": "prefill", "case": f"{shape}, 1 x {LONG}", "us": seconds * 1e6, "tokens_per_second": LONG / seconds,
            "flops": flops, "tflops": flops / seconds / 1e12, **share, "ok": True}


def prefill_flops(model, tokens: int) -> int:
    """Products and sums of every weight but embedding and head with each token, and of causal attention. (Delta rules count for
    nothing here: they are less than a hundredth.)"""
    outside = {id(model.embed_tokens), id(model.lm_head)}
    weights = sum(array.size for array in measure.arrays_of(model) if id(array) not in outside and array.ndim == 2)
    attention = model.kv_shape[0] * model.config.num_heads * model.config.head_dim
    return 2 * tokens * weights + 2 * tokens * tokens * attention


def measure_shape(shape: str, concurrencies: list[int], out: Path, cublas: bool) -> None:
    rows = [] if cublas else [first_token(shape)]
    gpu = device.current()
    ceilings = measure_ceilings(gpu)
    copy = ceilings.copy_tbps * 1e12
    engine = LLM(SHAPES / shape, **OPTIONS, cublas="auto" if cublas else "off").engine
    if cublas and gpu.cublas is None:
        raise SystemExit("the extra cublas is not installed: pip install \"vtlite[cublas]\"")
    steps = [] if cublas else [lambda c=c: decode_rows(engine, shape, c, copy) for c in concurrencies]
    steps += [lambda: [prefill_row(engine, shape, ceilings.matmul_tflops)]]
    steps += [lambda c=c: [loop_row(engine, shape, c, copy)] for c in concurrencies]
    for step in steps:
        made = step()
        for row in made:
            row["name"] += ".cublas" * cublas
        rows += [{name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()} for row in made]
        gpu_checks.write(out, gpu, ceilings, rows)
    for row in rows:
        print(json.dumps(row), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write; with several shapes one for each beside it")
    parser.add_argument("--shape", nargs="+", choices=sorted(VLLM), default=sorted(VLLM))
    parser.add_argument("--concurrency", nargs="+", type=int, choices=sorted(PROMPTS), default=sorted(PROMPTS))
    parser.add_argument("--cublas", action="store_true", help="prompts by the extra cublas, and nothing but what it changes")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if len(args.shape) == 1:
        measure_shape(args.shape[0], args.concurrency, args.out, args.cublas)
        return 0
    failed = 0
    for shape in args.shape:
        command = [sys.executable, "-m", "bench.models", "--shape", shape, "--out", args.out.with_stem(f"{args.out.stem}-{shape}"),
                   "--concurrency", *map(str, args.concurrency), *["--cublas"] * args.cublas]
        failed |= subprocess.run(command, cwd=gpu_checks.ROOT).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
