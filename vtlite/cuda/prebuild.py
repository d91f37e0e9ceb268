"""Compiling ahead: sets of kernels for several chips, in parallel processes, into a folder of cubins."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from vtlite.cuda import all_kernels, cubin_cache
from vtlite.cuda.kernel import KERNELS, Specialized


@dataclass(frozen=True)
class Row:
    """One kernel on one chip, as the tables show it."""

    kernel: str
    chip: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    problem: str = ""                   # why there is no cubin


def to_prebuild() -> list[Specialized]:
    """What the kernels' files ask to have compiled ahead."""
    return [specialized for kernel in all_kernels() for specialized in kernel.to_prebuild()]


def build_all(kernels: Iterable[Specialized], chips: Sequence[str], folder: Path, processes: int | None = None) -> Iterator[list[Row]]:
    """Compile what the folder lacks, kernel by kernel as they are done: a row per chip that a kernel runs on."""
    jobs = [(s.kernel.function.__module__, s.kernel.name, dict(s.constants), [c for c in chips if s.runs_on(c)]) for s in kernels]
    processes = min(processes or os.cpu_count() or 1, max(len(jobs), 1))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_build, *job, folder) for job in jobs]):
            yield future.result()


def _build(module: str, name: str, constants: Mapping[str, Any], chips: Sequence[str], folder: Path) -> list[Row]:
    from vtlite.cuda.compiler import CompileError
    import_module(module)
    specialized = KERNELS[f"{module}.{name}"].specialize(**constants)
    rows = []
    for chip in chips:
        try:
            entry = cubin_cache.read(folder, specialized, chip) or cubin_cache.build(specialized, chip, folder)
            rows.append(row(specialized, chip, entry))
        except CompileError as error:
            rows.append(Row(specialized.name, chip, 0, 0, 0, str(error)))
    return rows


def row(specialized: Specialized, chip: str, entry: cubin_cache.Entry) -> Row:
    figures = entry.figures
    return Row(specialized.name, chip, figures["registers"], figures["shared_bytes"],
               figures["spill_store_bytes"] + figures["spill_load_bytes"])
