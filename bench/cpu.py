"""How close the CPU wing comes to what the machine can do: bytes and flops per second, and tokens per second.

    python bench/cpu.py [--model MODEL] [--json FILE]

The ceiling of everything that reads memory is the copy bandwidth measured first, with every core. Each time is the
best of many repeats, because other programs share the machine; the load average is printed to judge by.
JSON: {"meta": {...}, "rows": [{"name", "case", "us", "bytes" or "flops", "share", "ok"}]}; share is of the ceiling
(bytes: that copy; flops: NumPy's matrix product), ok says whether the row meets its target, if it has one.
"""

import argparse
import json
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import ml_dtypes
import numba
import numpy as np
from rich.console import Console
from rich.table import Table

from vtlite import LLM, SamplingParams, cpu
from vtlite.engine.batch import Ragged, SamplingBatch
from vtlite.cpu.kernel import Kernel, pointer_to, run
from vtlite.cpu.cores import num_threads
from vtlite.cpu.simd import LANES, add, hsum, load, splat

MIB = 1 << 20
FAR_BEYOND_CACHE = 512 * MIB
DECODE_TARGET = 0.60
SMOLLM2 = {"qkv_proj": (960, 576), "o_proj": (576, 576), "gate_up_proj": (3072, 576), "down_proj": (576, 1536),
           "lm_head": (49152, 576)}
HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 9, 3, 64, 16


def best(call, repeats: int = 20) -> float:
    """Shortest time of one call in microseconds, after a first one that compiles and warms."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def machine() -> list[dict]:
    threads = num_threads()
    source, target = np.ones((2, FAR_BEYOND_CACHE // 4), np.float32)
    halves = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        copy = best(lambda: list(pool.map(lambda pair: np.copyto(*pair), halves)))
    square = np.ones((1024, 1024), np.float32)
    return [{"name": "machine", "case": f"copy, {threads} threads", "us": copy, "bytes": 2 * source.nbytes},
            {"name": "machine", "case": f"read, {threads} threads", "us": best(lambda: _read(source, threads)), "bytes": source.nbytes},
            {"name": "machine", "case": "sgemm of NumPy, 1024^3", "us": best(lambda: square @ square), "flops": 2 * 1024**3}]


def _read(array: np.ndarray, threads: int) -> None:
    """Read the whole array, each thread walking four streams of its own."""
    sums = np.empty(threads, np.float32)
    run(_read_share, threads, array, sums, array.size // (4 * LANES * threads) * LANES)


@Kernel
def _read_share(task, args):
    array, sums, quarter = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), args[2]
    a0 = a1 = a2 = a3 = splat(0)
    for i in range(4 * quarter * task, 4 * quarter * task + quarter, LANES):
        a0, a1 = add(a0, load(array, i)), add(a1, load(array, i + quarter))
        a2, a3 = add(a2, load(array, i + 2 * quarter)), add(a3, load(array, i + 3 * quarter))
    sums[task] = hsum(add(add(a0, a1), add(a2, a3)))


def linear() -> list[dict]:
    """Each shape of SmolLM2, over enough copies of the weight that none is left in a cache."""
    rng, rows = np.random.default_rng(0), []
    for name, (N, K) in SMOLLM2.items():
        size = 2 * N * K
        weights = [rng.integers(0, 1 << 14, (N, K), np.uint16).view(ml_dtypes.bfloat16)
                   for _ in range(-(-200 * MIB // size))]
        for T in (1, 256):
            if T > 1 and name == "lm_head":
                continue
            x = rng.standard_normal((T, K), np.float32)
            used = weights if T == 1 else weights[:4]
            us = best(lambda: [cpu.linear(x, w) for w in used], 8) / len(used)
            work = {"bytes": size + 4 * (N + K)} if T == 1 else {"flops": 2 * T * N * K}
            rows.append({"name": "linear", "case": f"{name} [{N}, {K}], {T} rows", "us": us, **work})
    return rows


def attention(context: int = 1024) -> list[dict]:
    rng = np.random.default_rng(0)
    blocks = context // BLOCK_SIZE
    caches = rng.standard_normal((64, 2, blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM), np.float32)
    rows = []
    for T in (1, 256):
        batch = SimpleNamespace(query_start_loc=np.array([0, T]), seq_lens=np.array([context]),
                                block_table=rng.permutation(blocks).astype(np.int32)[None])
        q = rng.standard_normal((T, HEADS, HEAD_DIM), np.float32)
        used = caches if T == 1 else caches[:2]
        us = best(lambda: [cpu.paged_attention(q, kv, batch, HEAD_DIM**-0.5) for kv in used], 8) / len(used)
        pairs = T * context - T * (T - 1) // 2
        work = {"bytes": caches[0].nbytes} if T == 1 else {"flops": 4 * pairs * HEADS * HEAD_DIM}
        rows.append({"name": "attention", "case": f"context {context}, {T} rows", "us": us, **work})
    return rows


def sampling(vocab_size: int = 49152) -> list[dict]:
    """One row of logits as SmolLM2 makes them; bytes are those of the logits."""
    logits = np.random.default_rng(0).standard_normal((1, vocab_size), np.float32) * 3
    cases = {"greedy": (0, 0, 1), "temperature 1": (1, 0, 1), "temperature 0.7, top-k 20, top-p 0.95": (0.7, 20, 0.95),
             "temperature 1, top-p 0.95": (1, 0, 0.95)}
    rows = []
    for case, (temperature, top_k, top_p) in cases.items():
        batch = _sampling_batch(temperature, top_k, top_p)
        rows.append({"name": "sample", "case": case, "us": best(lambda: cpu.sample(logits, batch)), "bytes": logits.nbytes})
    return rows


def _sampling_batch(temperature: float, top_k: int, top_p: float) -> SamplingBatch:
    def one(value, dtype=np.float32):
        return np.array([value], dtype)
    empty = [Ragged.of([[]], dtype) for dtype in (np.int64, np.int64, np.int64, np.int64, np.float32)]
    return SamplingBatch(one(temperature), one(top_k, np.int32), one(top_p), one(0), one(1), one(0), one(0),
                         one(1, np.uint64), one(9, np.int64), *empty, num_logprobs=-1)


def whole_model(model: str) -> list[dict]:
    """Decode: the fastest 16 tokens in a row of a greedy answer. Prefill: a prompt of 512 tokens to its first token."""
    llm = LLM(model, device="cpu", enable_prefix_caching=False)
    decode_bytes = _bytes_per_token(llm)
    flops = decode_bytes - llm.engine.model.lm_head.nbytes                  # two per 2-byte weight; the head sees one row
    params = SamplingParams(temperature=0, max_tokens=128, ignore_eos=True)
    stamps = [time.perf_counter() for _ in llm.stream([1, 2, 3, 4], params)]
    stamps += [time.perf_counter() for _ in llm.stream([1, 2, 3, 4], params)]
    decode = min(b - a for a, b in zip(stamps, stamps[16:])) / 16 * 1e6
    prompt = [int(i) for i in np.random.default_rng(0).integers(100, llm.engine.model_config.vocab_size, 512)]
    prefill = best(lambda: next(iter(llm.stream(prompt, params))), 3)
    return [{"name": "model", "case": "decode, 1 token", "us": decode, "bytes": decode_bytes, "tokens": 1,
             "target": DECODE_TARGET},
            {"name": "model", "case": "prefill, 512 tokens", "us": prefill, "flops": 512 * flops, "tokens": 512}]


def _bytes_per_token(llm: LLM) -> int:
    """Every weight is read once per token, except an embedding that is not also the head."""
    model = llm.engine.model
    stored = sum(file.stat().st_size for file in llm.engine.directory.glob("*.safetensors"))
    return stored if model.lm_head is model.embed_tokens else stored - model.embed_tokens.nbytes


def judge(rows: list[dict]) -> None:
    """Add share of the ceiling and ok to each row; the ceilings are the rows of the machine itself."""
    for kind, machine in (("bytes", "copy"), ("flops", "sgemm")):
        ceiling = next(row[kind] / row["us"] for row in rows if row["case"].startswith(machine))
        for row in rows:
            if kind in row:
                row["share"] = row[kind] / row["us"] / ceiling
                row["ok"] = row["share"] >= row.pop("target", 0)


def show(rows: list[dict], meta: dict) -> None:
    table = Table("what", "case", "time", "rate", "share", "tokens/s", "ok", title=", ".join(f"{k} {v}" for k, v in meta.items()))
    for row in rows:
        rate = f"{row['bytes'] / row['us'] / 1e3:.1f} GB/s" if "bytes" in row else f"{row['flops'] / row['us'] / 1e3:.1f} GFLOP/s"
        tokens = f"{row['tokens'] / row['us'] * 1e6:.1f}" if "tokens" in row else ""
        table.add_row(row["name"], row["case"], f"{row['us']:.0f} us", rate, f"{row['share']:.0%}", tokens, "yes" if row["ok"] else "NO")
    Console(width=130).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="a checkpoint directory or a name vtlite knows (default: smollm2)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    rows = machine() + linear() + attention() + sampling() + whole_model(options.model)
    judge(rows)
    meta = {"machine": platform.machine(), "cores": os.cpu_count(), "threads": num_threads(),
            "numba": numba.__version__, "load": round(os.getloadavg()[0], 1)}
    show(rows, meta)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"meta": meta, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
