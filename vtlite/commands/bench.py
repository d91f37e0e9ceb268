"""`vtlite bench`: how fast a model runs here, beside how fast the memory could let it run."""

import argparse
import json
import statistics
from pathlib import Path

from vtlite.commands.model import add_engine, add_model, load_llm
from vtlite.errors import ConfigError

NOTES = """
latency     one wave of --concurrency requests that start together; time per decode step, and its parts
throughput  a closed loop: --concurrency clients, each of whom asks again when it has its answer

Prompts are random token ids; answers are greedy and all --output-len tokens long. A wave that is not counted comes first. The
floor of a decode step is its bytes over this machine's copy bandwidth, measured in the same run: weights once, and the keys and
values that the requests attend to. --load-format dummy needs no more than a config.json.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = NOTES
    parser.add_argument("kind", choices=("latency", "throughput"))
    add_model(parser)
    parser.add_argument("--input-len", type=int, default=1024, metavar="N", help="tokens of a prompt (default: 1024)")
    parser.add_argument("--output-len", type=int, default=128, metavar="N", help="tokens of an answer (default: 128)")
    parser.add_argument("--concurrency", type=int, default=1, metavar="N", help="requests at once (default: 1)")
    parser.add_argument("--num-prompts", type=int, metavar="N", help="of throughput, in all (default: 4 for each client)")
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    engine = add_engine(parser)
    engine.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="tokens per step (default: 512, on a GPU 8192)")


def run(args: argparse.Namespace) -> int:
    for name in ("input_len", "concurrency"):
        if getattr(args, name) < 1:
            raise ConfigError(f"{name} should be at least 1, found {getattr(args, name)}")
    if args.output_len < 3:
        raise ConfigError(f"output_len should be at least 3, found {args.output_len}: steps between tokens are what is timed")
    args.max_num_seqs, args.enable_prefix_caching = args.concurrency, False
    args.max_model_len = args.max_model_len or args.input_len + args.output_len + LONGER

    from vtlite.checkpoint.resolve import resolve
    from vtlite.engine import measure
    engine = load_llm(resolve(args.model), args).engine
    if engine.device is not None and engine.device.name == "emulator":
        raise ConfigError("the emulator has no speed worth measuring: unset VTLITE_DEVICE on a machine with a GPU")
    num_prompts = args.concurrency if args.kind == "latency" else args.num_prompts or 4 * args.concurrency
    measure.closed_loop(engine, args.input_len, args.output_len, args.concurrency, args.concurrency, seed=1)
    done = measure.closed_loop(engine, args.input_len, args.output_len, args.concurrency, num_prompts)
    rows = measure.rows(engine, done, args.input_len, args.output_len, args.concurrency)
    parts = measure.step_by_part(engine, args.input_len, args.concurrency) if args.kind == "latency" else None
    _show(args, engine, done, rows[0], parts)
    if args.json:
        _write(args, engine, rows, parts)
    return 0


LONGER = 64                      # tokens of context for the step that is taken apart


def _show(args, engine, done, step: dict, parts) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    where = "this CPU" if engine.device is None else engine.device.name
    table = Table(title=f"{step['case']}, on {where}", title_justify="left", box=box.SIMPLE, show_edge=False, show_header=False)
    first = sorted(done.first_token)
    for name, value in (
            ("output tokens/s", f"{done.num_output_tokens / done.seconds:.1f}"),
            ("input and output tokens/s", f"{(done.num_input_tokens + done.num_output_tokens) / done.seconds:.1f}"),
            ("time to the first token", f"mean {statistics.mean(first) * 1e3:.1f} ms, median {statistics.median(first) * 1e3:.1f} ms, "
                                        f"worst {first[-1] * 1e3:.1f} ms"),
            ("time per token after it", f"{statistics.mean(done.per_token) * 1e3:.2f} ms"),
            ("decode step", f"{step['us'] / 1e3:.3f} ms (median of {len(done.decode_steps)}): "
                            f"{args.concurrency / step['us'] * 1e6:.1f} tokens/s"),
            ("bytes per decode step", f"{step['bytes'] / 1e9:.3f} GB"),
            ("floor", f"{step['floor_us'] / 1e3:.3f} ms at the {step['ceiling_tbps'] * 1e3:.1f} GB/s of a copy"),
            ("share of the floor reached", f"{step['share']:.0%}")):
        table.add_row(name, value)
    console = Console()
    console.print(table)
    if parts is not None:
        seconds, named = parts
        what = "a decode step by kernel" if engine.device is not None else "operations of a step that is not replayed"
        table = Table(what, "ms", "share", box=box.SIMPLE, show_edge=False)
        table.columns[1].justify = table.columns[2].justify = "right"
        for name, part in sorted(named, key=lambda pair: -pair[1]):
            table.add_row(name, f"{part * 1e3:.3f}", f"{part / seconds:.1%}")
        table.add_row("the step", f"{seconds * 1e3:.3f}", "100.0%")
        console.print(table)


def _write(args, engine, rows: list[dict], parts) -> None:
    if parts is not None:
        rows += [{"name": "step.part", "case": name, "us": part * 1e6, "ok": True} for name, part in parts[1]]
    meta = {"device": "cpu" if engine.device is None else engine.device.name, "load_format": args.load_format,
            "mamba_ssm_cache_dtype": engine.config.mamba_ssm_cache_dtype}
    try:
        Path(args.json).write_text(json.dumps({"meta": meta, "rows": rows}, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"{args.json} cannot be written ({error.strerror})") from None
