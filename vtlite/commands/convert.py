"""`vtlite convert`: a GGUF file becomes a checkpoint directory."""

import argparse

DTYPES = ("bfloat16", "float32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Weights are unpacked, and the tokenizer and chat template come along. Needs the extra vtlite[gguf]."
    parser.add_argument("gguf", metavar="FILE.gguf")
    parser.add_argument("out_dir", metavar="OUT_DIR", help="directory to make")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16",
                        help="what the weights become; float32 keeps every value exactly (default: bfloat16)")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from vtlite.checkpoint.gguf import convert
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tensors"),
               TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("converting", total=None)
        directory = convert(args.gguf, args.out_dir, args.dtype,
                            lambda done, total: bar.update(task, completed=done, total=total))
    size = sum(file.stat().st_size for file in directory.iterdir())
    print(f"{directory}: {size / 2**20:.1f} MiB; try: vtlite generate {args.out_dir} --prompt \"Hello\"")
    return 0
