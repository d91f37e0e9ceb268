"""`vtlite doctor`: what is installed here, what would run, and what to do about the rest."""

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from vtlite.cache_folder import cache_folder

BASE = {"ml_dtypes": "ml_dtypes", "safetensors": "safetensors", "tokenizers": "tokenizers", "jinja2": "jinja2",
        "rich": "rich", "starlette": "starlette", "uvicorn": "uvicorn", "msgspec": "msgspec",
        "prometheus_client": "prometheus-client"}
EXTRAS = {     # extra: module, package, what it is for
    "hub": ("huggingface_hub", "huggingface-hub", "models from the Hugging Face Hub"),
    "gguf": ("gguf", "gguf", "smollm2, and vtlite convert"),
    "gpu": ("cuda.bindings", "cuda-bindings", "running models on an NVIDIA GPU"),
    "cublas": ("nvmath", "nvmath-python", "faster prefill on an NVIDIA GPU, the same bits"),
    "cuda": ("numba_cuda_mlir", "numba-cuda-mlir", "compiling the GPU kernels that are not prebuilt"),
}
ENGINE = ("vtlite.engine.llm", "vtlite.cpu", "vtlite.serve.run")
OLDEST_PYTHON = (3, 11)
LITTLE_MEMORY = 1 << 30      # the smallest real model and its KV cache fit into less


@dataclass(frozen=True)
class Check:
    """One finding. `ok` None means absent but not needed for the main command; `next` is what to do about it."""

    name: str
    ok: bool | None
    found: str
    next: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = ("The exit code is 0 if the main command (vtlite generate, on the CPU, with the default model) "
                     "would run.")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def run(args: argparse.Namespace) -> int:
    from vtlite import __version__
    base = [_python(), _import("numpy"), _numba(), _base_packages()]
    broken = [check for check in base if check.ok is False]
    extras = [_extra(name) for name in EXTRAS]
    machine = [_processor(), _nvidia(), _cache_folder()] + ([] if broken else [_engine(), _memory(), _default_model()])
    checks = base + extras + machine + _cublas()
    uses = _uses(broken or [check for check in machine if check.ok is False], extras + machine)
    if args.json:
        print(json.dumps({"version": __version__, "ok": bool(uses[0].ok), "checks": [asdict(c) for c in checks],
                          "would_run": [asdict(use) for use in uses]}, indent=2, ensure_ascii=False))
    else:
        _print(f"vtlite {__version__}", checks, uses)
    return 0 if uses[0].ok else 1


def _uses(problems: list[Check], checks: list[Check]) -> list[Check]:
    """What would run and what would not; the main command first."""
    cpu = True, "yes", ""
    if problems:
        cpu = False, f"no: {problems[0].name}, {problems[0].found}", problems[0].next
    extra = {check.name: (check.ok, "yes" if check.ok else f"no: {check.found}", check.next) for check in checks}
    gpu = next((extra[name] for name in ("NVIDIA GPU", "extra gpu") if not extra[name][0]), (True, "yes", ""))
    return [
        Check("generate, chat, serve on the CPU", *cpu),
        Check("the same with --device reference", *cpu),
        Check("the same with --device cuda", *(cpu if problems else gpu)),
        Check("convert", *extra["extra gguf"]),
        Check("models from the Hugging Face Hub", *extra["extra hub"]),
    ]


def _python() -> Check:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        return Check("Python", False, found, f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    return Check("Python", True, found)


def _import(module: str) -> Check:
    """Whether a package is there and can be imported, too."""
    try:
        return Check(module, True, import_module(module).__version__)
    except Exception as error:      # a broken installation can raise anything
        return Check(module, False, f"{type(error).__name__}: {error}".splitlines()[0],
                     f"pip install --force-reinstall {module}")


def _numba() -> Check:
    check = _import("numba")
    if not check.ok:
        return check
    from vtlite.engine.device import cpu_threads
    return Check("numba", True, f"{check.found}, {cpu_threads()} threads (VTLITE_NUM_THREADS changes that)")


def _base_packages() -> Check:
    missing = [package for module, package in BASE.items() if find_spec(module) is None]
    if missing:
        return Check("other packages", False, f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    return Check("other packages", True, f"all {len(BASE)} installed")


def _extra(name: str) -> Check:
    module, package, purpose = EXTRAS[name]
    try:
        return Check(f"extra {name}", True, f"{package} {version(package)}: {purpose}")
    except PackageNotFoundError:
        return Check(f"extra {name}", None, f"{package} is not installed ({purpose})", f'pip install "vtlite[{name}]"')


def _processor() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    info = _fields(Path("/proc/cpuinfo"))
    found = f"{info.get('model name') or platform.processor() or platform.machine()}, {cores} core{'s' * (cores != 1)}"
    if "flags" in info and "fma" not in info["flags"].split():
        return Check("CPU", True, f"{found}, without FMA instructions", "expect answers to be slow on this machine")
    return Check("CPU", True, found)


def _fields(path: Path) -> dict[str, str]:
    """The "name: value" lines of a file in /proc; of repeated names the first. {} where there is no such file."""
    if not path.exists():
        return {}
    pairs = (line.split(":", 1) for line in reversed(path.read_text().splitlines()) if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _nvidia() -> Check:
    from vtlite.commands.nvidia import DriverError, driver
    try:
        (major, minor), devices = driver()
    except DriverError as error:
        return Check("NVIDIA GPU", None, str(error), "nothing: models run on the CPU")
    if not devices:
        return Check("NVIDIA GPU", None, f"a driver for CUDA {major}.{minor}, but no device", "see what nvidia-smi says")
    names = [f"{d.name} (sm_{''.join(map(str, d.compute_capability))}, {d.memory / 2**30:.0f} GiB)" for d in devices]
    return Check("NVIDIA GPU", True, f"{', '.join(names)}; driver for CUDA {major}.{minor}")


def _cublas() -> list[Check]:
    """Which linear layers of the model that ran last are computed by cuBLASLt, and why others are not."""
    from vtlite.cuda import cublas_record
    record = cublas_record.read()
    if record is None or find_spec(EXTRAS["cublas"][0]) is None:
        return []
    if record["problem"]:
        return [Check("cuBLASLt", None, f"not used on {record['gpu']}: {record['problem']}", 'pip install --upgrade "vtlite[cublas]"')]
    layers: dict[str, list[dict]] = {}
    for found in record["classes"]:
        layers.setdefault(f"cuBLASLt, {found['rows']} x {found['K']}, {found['kind']}", []).append(found)
    where = f"at the last start on {record['gpu']}, with version {record['version']}"
    return [Check(name, True if all(c["used"] for c in classes) else None, f"{_by_rows(classes)} ({where})",
                  "" if all(c["used"] for c in classes) else "nothing: vtlite's own kernels compute the rest, the same bits")
            for name, classes in layers.items()]


def _by_rows(classes: list[dict]) -> str:
    """Used for up to 256, 512 rows; not for up to 1024: 12 of 5242880 outputs of 1024 rows differ."""
    used = [str(c["most_rows"]) for c in classes if c["used"]]
    others = [f"not for up to {c['most_rows']}: {c['why']}" for c in classes if not c["used"]]
    return "; ".join([f"used for up to {', '.join(used)} rows"] * bool(used) + others)


def _engine() -> Check:
    try:
        for module in ENGINE:
            import_module(module)
    except Exception as error:      # as above
        return Check("engine", False, f"{module}: {type(error).__name__}: {error}".splitlines()[0],
                     "install vtlite again")
    return Check("engine", True, "can be imported, with the operations for the CPU")


def _memory() -> Check:
    from vtlite.engine.host_memory import host_memory
    memory = host_memory()
    of = f"the machine's {_gib(memory.total)}"
    if memory.container_limit is not None:
        of = f"the {_gib(memory.container_limit)} that this container may use (the machine has {_gib(memory.total)})"
    return Check("memory", True, f"{_gib(memory.available)} free of {of}",
                 "close other programs: even a small model wants 1 GiB" if memory.available < LITTLE_MEMORY else "")


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def _cache_folder() -> Check:
    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Check("cache folder", True, str(folder))
    except OSError as error:
        return Check("cache folder", False, f"{folder} cannot be written ({error.strerror})",
                     "set XDG_CACHE_HOME to a folder that can be written")


def _default_model() -> Check:
    from vtlite.checkpoint.resolve import BUNDLED, DEFAULT_MODEL
    directory = BUNDLED / DEFAULT_MODEL
    if not (directory / "config.json").is_file():
        return Check("default model", False, f"{DEFAULT_MODEL} is not in {directory}",
                     "pip install --force-reinstall vtlite")
    size = sum(file.stat().st_size for file in directory.iterdir())
    return Check("default model", True, f"{DEFAULT_MODEL}, {size / 2**20:.0f} MiB in {directory}")



def _print(title: str, checks: list[Check], uses: list[Check]) -> None:
    if find_spec("rich") is None:
        for check in checks + uses:
            print(f"{check.name}: {check.found}. {check.next}")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    marks = {True: Text("ok", style="green"), False: Text("no", style="bold red"), None: Text("--", style="dim")}
    for heading, rows in ((title, checks), ("What would run", uses)):
        table = Table("", "", "found", "next", title=heading, title_justify="left", box=box.SIMPLE, show_edge=False)
        table.columns[0].no_wrap = table.columns[1].no_wrap = True
        for check in rows:
            table.add_row(marks[check.ok], check.name, Text(check.found), Text(check.next))
        Console().print(table)
        Console().print()
