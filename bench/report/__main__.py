"""bench/RESULTS.md from every file of bench/results: figures beside peers and limits, bold where they fall short.

    python -m bench.report [--results bench/results] [--out bench/RESULTS.md]

A file is {"meta", "rows"}. Of several variants of one case the one that the engine launches makes the row, and the fastest other
stands in a column. A row's peer has the same case: the next one in its file, else that in h200-peers.json, marked †.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from bench.report.limits import LIMITS, Limit, matches
from bench.report.rows import Row, engine_rows, read
from bench.report.tables import TABLES, duration, how_text, ms, text_of

BENCH = Path(__file__).parents[1]
CEILINGS = {"copy_tbps": "copy {:.2f} TB/s", "read_tbps": "read {:.2f} TB/s", "matmul_tflops": "tensor core {:.0f} TFLOP/s"}
SMALL_PART = 0.005                              # of every step: kernels that take less are summed
INTRODUCTION = """# Results

Made by `python -m bench.report` from the files of `bench/results/`. What falls short of a limit of the issues, or
differs from its definition, is bold. A share is of the ceiling that was measured in the same run: bytes read and
written by a copy, bytes read alone, or operations of the tensor core. "Times" says how many times as fast as the peer;
† marks a peer measured in another run, on another H200 (`h200-peers.json`)."""


def page(results: Path) -> str:
    rows = engine_rows([row for path in sorted(results.glob("*.json")) for row in read(path)])
    parts, told = [INTRODUCTION, section("Limits", limits(rows))], set()
    for table in TABLES:
        chosen = [row for row in rows if matches(row.name, table.names) and {"us", "failed", "errors"} & row.values.keys()]
        told.update(chosen)
        cells = [[header for header, _ in table.columns], *([show(row) for _, show in table.columns] for row in chosen)]
        parts.append(section(table.title, cells, table.introduction, chosen))
        if table.title == "Whole models: decode step":
            parts += steps_by_kernel([row for row in rows if row.name == "step.part"])
    compiled = [row for row in rows if row.name == "kernel"]
    parts.append(section("Compiled kernels", chips(compiled), "All that the package carries, for every chip.", compiled))
    rest = [row for row in rows if row.ok and row not in told and not matches(row.name, "peer.* step.part kernel")]
    table = [["check", "case"], *([row.name, text_of(row.case)] for row in rest)]
    parts.append(section("Other checks, passed", table, rows=rest))
    wrong = [row for chosen in rows for row in [chosen, *chosen.others] if not row.ok]
    table = [["check", "case", "variant", "why"],
             *([row.name, text_of(row.case) or "-", how_text(row) or "-", why(row)] for row in wrong)]
    parts.append(section("Failed checks", table, rows=wrong))
    return "\n\n".join(filter(None, parts)) + "\n"


def section(title: str, table: list[list[str]], introduction: str = "", rows: Iterable[Row] = ()) -> str:
    """A heading, what to know, the table (its first row the header), and the runs of `rows`; empty if the table is."""
    if len(table) < 2:
        return ""
    columns = [column for column in zip(*table, strict=True) if set(column[1:]) != {"-"}]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in zip(*columns, strict=True)]
    lines.insert(1, "|---" * len(columns) + "|")
    return "\n\n".join(filter(None, [f"## {title}", introduction, "\n".join(lines), runs(rows)]))


def runs(rows: Iterable[Row]) -> str:
    """Where figures come from: each file with its ceilings, after what is the same of several files."""
    files: dict[str, list[str]] = {}
    for file, meta in {row.file: row.meta for row in rows}.items():
        told = [value if name in ("gpu", "date", "note") else f"{name} {version_of(value)}" for name, value in meta.items()
                if name not in ("versions", "ceilings")]
        told += [f"{name} {value}" for name, value in meta.get("versions", {}).items()]
        ceilings = [CEILINGS[name].format(value) for name, value in meta.get("ceilings", {}).items() if value]
        files.setdefault(", ".join(told), []).append(f"`{file}`" + f" ({', '.join(ceilings)})" * bool(ceilings))
    return "\n\n".join(f"*{', '.join(names)}: {told}.*" for told, names in files.items())


def version_of(value: object) -> str:
    return f"{value // 1000}.{value % 1000 // 10}" if isinstance(value, int) and value >= 1000 else str(value)


def limits(rows: list[Row]) -> list[list[str]]:
    table = [["issue", "what", "limit", "aim", "measured"]]
    for limit in LIMITS:
        found = {row: row.value(limit.metric, limit.peer) for row in rows if limit.applies(row)}
        found = {row: value for row, value in found.items() if value is not None or not row.ok}
        short = [row for row in found if limit.is_missed(row) or not row.ok]
        absent = [text_of(case) for case in limit.cases if not any(case.items() <= row.case.items() for row in found)]
        values = sorted(value for value in found.values() if value is not None)
        text = " to ".join(dict.fromkeys(shown(limit, value) for value in values[:1] + values[-1:]))
        text = f"**{text}: {len(short)} of {len(found)} short or wrong**" if short else text
        missing = f"not measured: {'; '.join(absent)}" if any(absent) else "not measured" if absent else ""
        measured = ", ".join(filter(None, [text, missing]))
        table.append([limit.issue, limit.what, shown(limit, limit.limit), shown(limit, limit.aim), measured])
    return table


def shown(limit: Limit, value: float | None) -> str:
    if value is None:
        return "-"
    return duration(value) if limit.metric == "us" else f"{value:.2f}" if limit.metric in ("share", "ratio") else str(value)


def steps_by_kernel(rows: list[Row]) -> list[str]:
    """A table for each model, whose columns add up to a step."""
    made = []
    for shape in dict.fromkeys(row.case["shape"] for row in rows):
        own = [row for row in rows if row.case["shape"] == shape]
        us = {(row.case["part"].removesuffix("_kernel"), row.case["concurrency"]): row.values["us"] for row in own}
        names, requests = (list(dict.fromkeys(column)) for column in zip(*us, strict=True))
        steps = {n: sum(us.get((name, n), 0) for name in names) for n in requests}
        large = [name for name in names if any(us.get((name, n), 0) > SMALL_PART * steps[n] for n in requests)]
        small = {n: steps[n] - sum(us.get((name, n), 0) for name in large) for n in requests}
        table = [["ms of a step", *(f"{n} request{'s' * (n > 1)}" for n in requests)],
                 *([name, *(ms(us.get((name, n), 0)) for n in requests)] for name in large),
                 [f"others ({len(names) - len(large)})", *(ms(small[n]) for n in requests)],
                 ["all", *(ms(steps[n]) for n in requests)]]
        made.append(section(f"Whole models: decode step of {shape} by kernel", table, "Timed apart from the step above.", own))
    return made


def chips(rows: list[Row]) -> list[list[str]]:
    table = [["chip", "kernels", "most registers", "most shared memory, bytes", "with spills", "not compiled"]]
    for chip in dict.fromkeys(row.case["chip"] for row in rows):
        own = [row.values for row in rows if row.case["chip"] == chip]
        most = [f"{max(kernel[what] or 0 for kernel in own):,}" for what in ("registers", "shared_bytes")]
        bad = [str(sum(bool(kernel[what]) for kernel in own)) for what in ("spill_bytes", "problem")]
        table.append([chip, str(len(own)), *most, *bad])
    return table


def why(row: Row) -> str:
    return row.values.get("problem") or (f"error {row.values['error']}" if "error" in row.values else "wrong, or over its limit")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=BENCH / "results", help="folder of JSON files")
    parser.add_argument("--out", type=Path, default=BENCH / "RESULTS.md", help="file to write")
    args = parser.parse_args()
    args.out.write_text(page(args.results), encoding="utf-8")


if __name__ == "__main__":
    main()
