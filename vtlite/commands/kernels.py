"""`vtlite kernels`: which GPU kernels there are, what they become on a chip, and how fast they are."""

import argparse
import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from vtlite.errors import VtliteError


class KernelsError(VtliteError):
    """A kernel, chip or file that was named cannot be had."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Kernels are looked up in the folder that VTLITE_CUBINS names, in the package, and in the user's cache."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    action = actions.add_parser("list", help="show registers, shared memory and spills per chip")
    action.add_argument("name", nargs="?", metavar="NAME", help="one kernel, with each of its specialisations")
    action.add_argument("--json", action="store_true", help="print JSON instead of a table")

    action = actions.add_parser("show", help="show one kernel: its Python, PTX or SASS")
    action.add_argument("name", metavar="NAME")
    form = action.add_mutually_exclusive_group()
    for option, text in (("python", "its source and the PTX of each primitive it uses (the default)"), ("ptx", "the compiled PTX"),
                         ("sass", "the disassembled cubin (needs nvdisasm)")):
        form.add_argument(f"--{option}", dest="form", action="store_const", const=option, help=text)
    action.add_argument("--chip", default="sm_90a", help="for --ptx and --sass (default: sm_90a)")
    action.add_argument("--set", dest="constants", action="append", default=[], metavar="NAME=VALUE",
                        help="a constant of the specialisation; repeat for more (default: the first that is prebuilt)")

    action = actions.add_parser("compile", help="compile ahead, with or without a GPU")
    action.add_argument("names", nargs="*", metavar="NAME", help="only these kernels")
    chips = action.add_mutually_exclusive_group()
    chips.add_argument("--chip", action="append", metavar="sm_XX", help="a chip; repeat for more (default: this machine's GPU)")
    chips.add_argument("--all-chips", action="store_true", help="every chip that vtlite supports")
    action.add_argument("--out", metavar="DIR", help="where to (default: the user's cache)")
    action.add_argument("--specs", action="store_true", help="also the sizes that tests and benches launch")
    action.add_argument("--model", action="append", default=[], metavar="MODEL",
                        help="also what a model launches: a checkpoint directory (config.json is enough) or a name; may be repeated")
    action.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    action.add_argument("--json", metavar="FILE", help="also write the table as JSON")

    action = actions.add_parser("time", help="time kernels on this GPU, beside its memory ceilings")
    action.add_argument("names", nargs="*", metavar="NAME", help="only ops whose name starts so, such as norm")
    action.add_argument("--json", metavar="FILE", help="also write the rows as JSON")


def run(args: argparse.Namespace) -> int:
    return {"list": _list, "show": _show, "compile": _compile, "time": _time}[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from vtlite.cuda import cubin_cache
    from vtlite.cuda.compiler import CHIPS
    from vtlite.cuda.prebuild import row
    kernels = [_find(args.name)] if args.name else _all()
    rows = []
    for specialized in (s for kernel in kernels for s in kernel.to_prebuild()):
        for chip in CHIPS:
            entries = (cubin_cache.read(folder, specialized, chip) for folder in cubin_cache.folders())
            if (entry := next(filter(None, entries), None)) is not None:
                rows.append(row(specialized, chip, entry))
    if args.json:
        print(json.dumps([asdict(r) for r in rows], indent=1))
        return 0
    lines = [specialized.name for kernel in kernels for specialized in kernel.to_prebuild()] if args.name else \
            [kernel.name for kernel in kernels]
    _print_table(rows, lines, whole=bool(args.name))
    if not rows:
        print("none is compiled yet: vtlite kernels compile")
    return 0


def _show(args: argparse.Namespace) -> int:
    from vtlite.cuda import cubin_cache
    kernel = _find(args.name)
    constants = dict(_constant(text) for text in args.constants)
    try:
        specialized = kernel.specialize(**constants) if constants else kernel.to_prebuild()[0]
    except TypeError as error:
        raise KernelsError(str(error)) from None
    if args.form == "ptx":
        print(cubin_cache.load(specialized, args.chip).ptx)
    elif args.form == "sass":
        print(_disassemble(cubin_cache.load(specialized, args.chip).cubin))
    else:
        _print_python(specialized)
    return 0


def _print_python(specialized) -> None:
    import inspect
    from textwrap import indent

    from vtlite.cuda.binding import functions_reached
    from vtlite.cuda.lang import PRIMITIVES
    functions = functions_reached(specialized.kernel.function, specialized.constants)
    print(f"# {specialized.name}: {specialized.threads} threads per block, "
          f"({', '.join(parameter.text for parameter in specialized.signature)})\n")
    for function in functions:
        if function not in PRIMITIVES:
            print(f"# {function.__module__}\n{inspect.getsource(function)}\n")
    print("# primitives")
    for function in functions:
        if function in PRIMITIVES:
            primitive = PRIMITIVES[function]
            print(f"{primitive.name}({', '.join(primitive.parameters)}): {inspect.getdoc(function).splitlines()[0]}")
            for chip, template in primitive.ptx.items():
                print(indent(f"{chip}  {template}", "    "))


def _disassemble(cubin: bytes) -> str:
    import shutil
    import subprocess
    import sys
    from tempfile import NamedTemporaryFile
    beside = [str(folder / "nvidia" / "cu13" / "bin") for folder in map(Path, sys.path)]
    tool = shutil.which("nvdisasm") or shutil.which("nvdisasm", path=":".join(beside))
    if tool is None:
        raise KernelsError("nvdisasm is not on the PATH: pip install nvidia-cuda-nvdisasm, or install the CUDA toolkit")
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-c", file.name], check=True, capture_output=True, text=True).stdout


def _compile(args: argparse.Namespace) -> int:
    from importlib.metadata import version

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from vtlite.cuda import cubin_cache
    from vtlite.cuda.prebuild import build_all, to_prebuild
    chips = _chips(args)
    folder = Path(args.out) if args.out else cubin_cache.user_cache()
    wanted = {_find(name) for name in args.names}
    chosen = dict.fromkeys(to_prebuild())
    if args.specs:
        from vtlite.cuda.recorder import launched_by_specs
        chosen |= dict.fromkeys(launched_by_specs())
    for model in args.model:
        from vtlite.checkpoint.resolve import resolve
        from vtlite.engine.model_kernels import launched_by_model
        chosen |= dict.fromkeys(launched_by_model(resolve(model)))
    kernels = [specialized for specialized in chosen if not wanted or specialized.kernel in wanted]
    console, rows = Console(stderr=True), []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("kernels"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling", total=len(kernels))
        for done in build_all(kernels, chips, folder, args.jobs):
            rows += done
            bar.advance(task)
    rows.sort(key=lambda row: (row.kernel, chips.index(row.chip)))
    _print_table(rows, list(dict.fromkeys(s.kernel.name for s in kernels)), whole=False)
    if args.json:
        versions = {"numba-cuda-mlir": version("numba-cuda-mlir")}
        _write_json(args.json, {"meta": {"versions": versions}, "rows": [asdict(row) for row in rows]})
    problems = [row for row in rows if row.problem]
    for row in problems:
        print(row.problem)
    print(f"{len(rows) - len(problems)} cubins of {len(kernels)} specialised kernels in {folder}; "
          f"{sum(row.spill_bytes > 0 for row in rows)} spill, {len(problems)} do not compile")
    return 1 if problems else 0


def _time(args: argparse.Namespace) -> int:
    from vtlite.cuda import all_specs, device
    from vtlite.cuda.timing import measure_ceilings, time_op
    specs = [spec for name, spec in all_specs().items() if not args.names or name.startswith(tuple(args.names))]
    if not specs:
        raise KernelsError(f"no op's name starts with {' or '.join(args.names)}; there are {', '.join(all_specs())}")
    gpu = device.current()
    if gpu.name == "emulator":
        raise KernelsError("the emulator has no speed worth measuring: unset VTLITE_DEVICE on a machine with a GPU")
    ceilings = measure_ceilings(gpu)
    matmul = f", matmul {ceilings.matmul_tflops:.0f} TFLOP/s" if ceilings.matmul_tflops else ""
    print(f"{gpu.name} ({gpu.chip}): copy {ceilings.copy_tbps:.2f} TB/s, read {ceilings.read_tbps:.2f} TB/s{matmul}")
    rows = [time_op(gpu, spec, case, ceilings) for spec in specs for case in spec.bench_cases]
    table = _table("op", "case", ">us", ">rate", ">share", "right")
    for row in rows:
        case = " ".join(f"{name}={value}" for name, value in row["case"].items())
        rate = f"{row['bytes'] / row['us'] / 1e3:.0f} GB/s" if "bytes" in row else f"{row['flops'] / row['us'] / 1e6:.0f} TFLOP/s"
        table.add_row(row["name"], case, f"{row['us']:.1f}", rate, f"{row['share']:.0%}", "yes" if row["ok"] else "NO")
    _show_table(table)
    if args.json:
        _write_json(args.json, {"ceilings": asdict(ceilings), "rows": rows})
    return 0 if all(row["ok"] for row in rows) else 1


def _all() -> list:
    from vtlite.cuda import all_kernels
    return all_kernels()


def _find(name: str):
    known = {kernel.name: kernel for kernel in _all()}
    kernel = known.get(name) or known.get(f"{name}_kernel")
    if kernel is None:
        from difflib import get_close_matches
        near = "".join(f"; did you mean {match}?" for match in get_close_matches(name, known, n=1))
        raise KernelsError(f"there is no kernel {name!r}{near} (vtlite kernels list shows them)")
    return kernel


def _chips(args: argparse.Namespace) -> list[str]:
    from vtlite.cuda.compiler import CHIPS
    if args.all_chips:
        return list(CHIPS)
    if args.chip is None:
        from vtlite.cuda import device
        return [device.current().chip]
    if unknown := [chip for chip in args.chip if chip not in CHIPS]:
        raise KernelsError(f"{unknown[0]} is not a chip that vtlite compiles for; those are {', '.join(CHIPS)}")
    return args.chip


def _constant(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise KernelsError(f"--set {text} should be NAME=VALUE")
    try:
        return name, json.loads(value.lower() if value in ("True", "False") else value)
    except ValueError:
        raise KernelsError(f"--set {text}: the value should be a number, true or false") from None


def _print_table(rows, lines: list[str], whole: bool) -> None:
    """A line per kernel, of several specialisations the worst; or a line per specialisation."""
    cells = defaultdict(list)
    for row in rows:
        if not row.problem:
            cells[row.kernel if whole else row.kernel.partition("[")[0], row.chip].append(row)
    chips = list(dict.fromkeys(row.chip for row in rows))
    table = _table("registers / shared bytes / spilled bytes", *(f">{chip}" for chip in chips))
    for line in lines:
        worst = [[max(getattr(row, field) for row in cells[line, chip]) for field in ("registers", "shared_bytes", "spill_bytes")]
                 if cells[line, chip] else None for chip in chips]
        table.add_row(line, *("-" if figures is None else " / ".join(map(str, figures)) for figures in worst))
    _show_table(table)


def _table(*headings: str):
    """An empty table; headings that start with ">" are for numbers."""
    from rich import box
    from rich.table import Table
    table = Table(box=box.SIMPLE, show_edge=False)
    for heading in headings:
        table.add_column(heading.removeprefix(">"), justify="right" if heading.startswith(">") else "left")
    return table


def _show_table(table) -> None:
    from rich.console import Console
    console = Console()
    console.print(table) if console.is_terminal else Console(width=200).print(table)


def _write_json(path: str, content) -> None:
    try:
        Path(path).write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise KernelsError(f"{path} cannot be written ({error.strerror})") from None
