"""What the runtime costs on a GPU, what its memory gives, and how near to that every kernel comes.

    python -m bench.gpu_checks --out bench/results/h200-kernels.json [--only norm act launch.host]

Rows: launch.host (a prepared launch, and one packed on the spot), graph.node (a graph of 1,000 launches), start.warm (a new
process opens the device and loads every prebuilt cubin), then each OpSpec's bench cases, gated delta nets (bench/gdn.py) and
linear layers (bench/linear_bf16.py, bench/linear_cublas.py). Cubins come from VTLITE_CUBINS or the package where there is no
compiler. Limits that are promised stand in LIMITS; exit code 1 if one is missed or a result is wrong.

The file is whole after every check, so that a run that is cut short has told what it found; all that is printed, and
the traceback of what fails, is kept beside it (h200-kernels.log).
"""

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from bench import attention, gdn, linear_bf16, linear_cublas
from vtlite.cuda import all_specs, bandwidth, device
from vtlite.cuda.timing import Ceilings, measure_ceilings, time_op

ROOT = Path(__file__).parents[1]
LIMITS = {("launch.host", "prepared"): 8.0, ("graph.node", "1000 nodes"): 1.0, ("start.warm", "all prebuilt"): 2e6}      # us
NODES = 1000
WARM_START = """
import sys, time
start = time.perf_counter()
import vtlite
from vtlite.cuda import all_kernels, device
gpu = device.current()
kernels = [specialized for kernel in all_kernels() for specialized in kernel.to_prebuild() if specialized.runs_on(gpu.chip)]
for specialized in kernels:
    gpu.load(specialized)
gpu.synchronize()
print(time.perf_counter() - start, len(kernels), "numba_cuda_mlir" in sys.modules)
"""


def launch_host(gpu) -> list[dict]:
    """Host microseconds per launch of a kernel that does nothing, the stream drained beforehand."""
    x = gpu.zeros((1024,), np.uint32)
    empty = bandwidth.copy_kernel.specialize()
    prepared = gpu.prepare(empty, 1, x, x, 0)
    return [{"name": "launch.host", "case": "prepared", "us": _host_us(gpu, prepared.run), "ok": True},
            {"name": "launch.host", "case": "packed on the spot", "us": _host_us(gpu, lambda: gpu.launch(empty, 1, x, x, 0)), "ok": True}]


def _host_us(gpu, launch, count: int = 500, repeats: int = 15) -> float:
    times = []
    for _ in range(repeats):
        gpu.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            launch()
        times.append((time.perf_counter() - start) / count * 1e6)
    gpu.synchronize()
    return round(statistics.median(times), 3)


def graph_node(gpu) -> list[dict]:
    """Device microseconds per node of a replayed graph of empty kernels."""
    x = gpu.zeros((1024,), np.uint32)
    prepared = gpu.prepare(bandwidth.copy_kernel.specialize(), 1, x, x, 0)
    prepared.run()
    with gpu.capture() as graph:
        for _ in range(NODES):
            prepared.run()
    graph.replay()
    us = statistics.median(gpu.elapsed_us(graph.replay) for _ in range(20)) / NODES
    return [{"name": "graph.node", "case": f"{NODES} nodes", "us": round(us, 4), "ok": True}]


def start_warm() -> list[dict]:
    """Wall-clock time of a new process, imports included; best of three, so that files are in the page cache."""
    runs = [_run_python(WARM_START).split() for _ in range(3)]
    seconds, kernels, compiler_loaded = min(runs, key=lambda run: float(run[0]))
    return [{"name": "start.warm", "case": "all prebuilt", "us": round(float(seconds) * 1e6), "cubins": int(kernels),
             "ok": compiler_loaded == "False"}]


def _run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout


def exchange(gpu) -> list[dict]:
    """Arrays handed to torch and back, without a copy, where torch is installed."""
    try:
        import torch
    except ImportError:
        return []
    rows = []
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        theirs = torch.arange(24, device=f"cuda:{gpu.ordinal}").reshape(4, 6).to(dtype)
        ours = gpu.from_dlpack(theirs)
        back = torch.from_dlpack(ours)
        same = ours.address == theirs.data_ptr() == back.data_ptr() and bool((back == theirs).all())
        same &= bool((ours.numpy().astype(np.float64) == theirs.cpu().double().numpy()).all())
        rows.append({"name": "exchange.torch", "case": str(dtype), "ok": same})
    column = gpu.from_dlpack(theirs[:, 1:5:2])
    rows.append({"name": "exchange.torch", "case": "strided", "ok": bool((column.numpy() == theirs[:, 1:5:2].cpu().numpy()).all())})
    ours = gpu.array(np.arange(6, dtype=np.float32))
    seen = torch.as_tensor(ours, device=f"cuda:{gpu.ordinal}")          # through __cuda_array_interface__
    rows.append({"name": "exchange.torch", "case": "cuda array interface", "ok": seen.data_ptr() == ours.address})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write; the log goes beside it")
    parser.add_argument("--only", nargs="+", action="extend", default=[], metavar="NAME", help="only groups whose name starts so")
    args = parser.parse_args()
    gpu = device.current()
    chosen = {name: check for name, check in groups(gpu).items() if not args.only or name.startswith(tuple(args.only))}
    if not chosen:
        parser.error(f"no group's name starts with {' or '.join(args.only)}; there are {', '.join(groups(gpu))}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.with_suffix(".log").open("w") as log:
        def say(text: str) -> None:
            print(text, flush=True)
            print(text, file=log, flush=True)

        ceilings = measure_ceilings(gpu)
        say(f"{gpu}: {ceilings}")
        rows = []
        for name, checks in chosen.items():
            for check in checks:
                rows += run_check(name, check, ceilings, say)
                write(args.out, gpu, ceilings, rows)
    return 0 if all(row["ok"] for row in rows) else 1


def groups(gpu) -> dict[str, list[Callable]]:
    """Name -> checks, each of which makes rows from the ceilings."""
    checks = {"launch.host": [lambda _: launch_host(gpu)], "graph.node": [lambda _: graph_node(gpu)], "start.warm": [lambda _: start_warm()],
              "exchange.torch": [lambda _: exchange(gpu)]}
    for name, spec in all_specs().items():
        checks[name] = [lambda ceilings, spec=spec, case=case: [time_op(gpu, spec, case, ceilings)] for case in spec.bench_cases]
    return checks | attention.checks(gpu) | gdn.checks(gpu) | linear_bf16.checks(gpu) | linear_cublas.checks(gpu)


def run_check(name: str, check: Callable, ceilings: Ceilings, say: Callable[[str], None]) -> list[dict]:
    """The rows of a check, held to LIMITS; if it fails a row with the reason, for that must not cost the other results of a run."""
    try:
        rows = check(ceilings)
    except Exception as error:
        say(traceback.format_exc().rstrip())
        rows = [{"name": name, "case": "", "ok": False, "problem": f"{type(error).__name__}: {error}"}]
    for row in rows:
        row["ok"] &= row.get("us", 0) <= LIMITS.get((row["name"], str(row["case"])), float("inf"))
        say(json.dumps(row))
    return rows


def write(path: Path, gpu, ceilings: Ceilings, rows: list[dict]) -> None:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for package in ("cuda-core", "cuda-bindings", "numba-cuda-mlir", "nvmath-python", "nvidia-cublas", "torch"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    meta = {"gpu": gpu.name, "driver": gpu.driver_version, "versions": versions, "commit": commit,
            "date": datetime.date.today().isoformat(), "ceilings": asdict(ceilings)}
    whole = path.with_suffix(".tmp")
    whole.write_text(json.dumps({"meta": meta, "rows": rows}, indent=1) + "\n")
    whole.replace(path)


if __name__ == "__main__":
    sys.exit(main())
