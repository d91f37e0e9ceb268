"""Options that choose a model, how it runs and how it draws tokens; and the loading that follows from them."""

import argparse

DEVICES = ("auto", "cpu", "cuda", "reference", "sm_90")
SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop", "logprobs")


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?",
                        help="a checkpoint directory, a name such as smollm2, or a Hugging Face id; "
                             "left out: the default model")


def add_engine(parser: argparse.ArgumentParser):
    """Options that are fields of EngineConfig, under the same names; returns their group."""
    group = parser.add_argument_group("engine")
    group.add_argument("--device", choices=DEVICES, default="auto",
                       help="where to run; reference is the slow NumPy definition of every operation, sm_90 the bits of a Hopper GPU in "
                            "NumPy, slower still (default: auto)")
    group.add_argument("--load-format", choices=("auto", "dummy"), default="auto",
                       help="dummy draws weights at random, of the shapes that config.json implies, to measure speed and memory "
                            "with (default: auto, the checkpoint's own)")
    group.add_argument("--gpu-memory-utilization", type=float, metavar="SHARE",
                       help="what weights, activations and KV cache may take of a GPU's memory (default: 0.9)")
    group.add_argument("--num-gpu-blocks", dest="num_blocks", type=int, metavar="N",
                       help="blocks of KV cache; default: as many as fit")
    group.add_argument("--enforce-eager", action="store_true", help="launch kernels one by one on a GPU, never as a graph")
    group.add_argument("--cublas", choices=("auto", "off"), default="auto",
                       help="auto: long prompts on a GPU by cuBLASLt, with the extra cublas, wherever its bits are those of vtlite's "
                            "kernels (default: auto)")
    group.add_argument("--no-async-scheduling", dest="async_scheduling", action="store_false", default=None,
                       help="on a GPU, read the tokens of a step before the next one is launched: slower, the same answers")
    group.add_argument("--mamba-ssm-cache-dtype", choices=("float32", "bfloat16"),
                       help="what models with gated delta nets keep their recurrent states in; bfloat16 halves them, and rounds "
                            "each after a generated token and after every 64 tokens of a prompt (default: float32)")
    group.add_argument("--max-model-len", type=int, metavar="N", help="prompt and answer together, in tokens; "
                                                                      "default: all that the model was made for")
    return group


def add_sampling(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    """Options that are fields of SamplingParams, under the same names."""
    group = parser.add_argument_group("sampling (left out: what the checkpoint's generation_config.json recommends)")
    group.add_argument("--max-tokens", type=int, default=max_tokens, metavar="N",
                       help=f"end an answer after N tokens (default: {max_tokens})")
    group.add_argument("--temperature", type=float, metavar="T", help="0 always takes the most likely token")
    group.add_argument("--top-p", type=float, metavar="P", help="draw from the likeliest tokens that make up share P")
    group.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens; 0 = from all")
    group.add_argument("--min-p", type=float, metavar="P", help="drop tokens less likely than P times the likeliest")
    group.add_argument("--repetition-penalty", type=float, metavar="R",
                       help="above 1 makes tokens seen before less likely")
    group.add_argument("--seed", type=int, metavar="S", help="the same seed gives the same answer; left out: a new one")
    group.add_argument("--stop", action="append", metavar="TEXT", help="end an answer before TEXT; may be repeated")


def sampling_options(args: argparse.Namespace) -> dict:
    """The sampling options that were given, checked (RequestError), before a model is loaded for them."""
    from vtlite.engine.sampling_params import SamplingParams
    given = {name: value for name, value in vars(args).items() if name in SAMPLING and value is not None}
    SamplingParams(**given)
    return given


def load_llm(directory, args: argparse.Namespace):
    """The LLM in a checkpoint directory, with whatever fields of EngineConfig the command has options for."""
    from dataclasses import fields

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

    from vtlite.config import EngineConfig
    names = {field.name for field in fields(EngineConfig)}
    options = {name: value for name, value in vars(args).items() if name in names and value is not None}
    console = Console(stderr=True)
    bar = Progress(SpinnerColumn(), TextColumn(f"loading {directory.name}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
                   console=console, transient=True, disable=not console.is_terminal)
    with console.status(f"loading {directory.name}") as status:
        def show(num_bytes: int, total: int) -> None:
            """Weights travel to a device: a bar takes the spinner's place."""
            if not bar.tasks:
                status.stop()
                bar.start()
                bar.add_task("", total=total)
            bar.update(bar.task_ids[0], completed=num_bytes)

        from vtlite.engine.llm import LLM
        try:
            return LLM(directory, on_load=show, **options)
        finally:
            bar.stop()
