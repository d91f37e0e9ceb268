"""The front of the command line: finds the command, and turns errors into sentences and exit codes.

A command is a module of `vtlite.commands` with `add_arguments(parser)` and `run(args) -> int`. It is imported only when
it was asked for, and imports the engine only in `run`, so that help answers at once.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from vtlite.errors import VtliteError

COMMANDS = {
    "generate": "answer a prompt, or continue a text",
    "chat": "talk with a model in the terminal",
    "serve": "serve a model over HTTP, with OpenAI's API",
    "bench": "measure how fast a model runs here",
    "convert": "import a GGUF file as a checkpoint directory",
    "kernels": "list, compile, read and time the GPU kernels",
    "doctor": "show what is installed, what would run, and what to do about the rest",
}
EXIT_ERROR, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 2, 130, 141      # the last two: 128 + the signal's number


class UsageError(VtliteError):
    """The command line cannot be understood."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are VtliteErrors that name the help to read."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str):
        raise UsageError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")

    def refuse(self, unknown: list[str]):
        """UsageError for arguments that no option took, with the nearest option."""
        wrong = unknown[0].split("=")[0]
        self.error(f"unknown argument {wrong!r}{_nearest(wrong, self._option_string_actions)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `vtlite` with these arguments (default: the process's own); returns the exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")         # a console that lacks a character shows a question mark
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()                           # here, where a reader that has left is no surprise
    except BrokenPipeError:                              # the reader, such as `head`, has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except VtliteError as error:
        if os.environ.get("VTLITE_DEBUG") == "1":
            raise
        print(f"vtlite: {error}", file=sys.stderr)
        return EXIT_ERROR


def console() -> None:
    """The process `vtlite`. It ends at once: to take Numba's modules apart one by one would take half a second."""
    code = main()
    sys.stderr.flush()
    os._exit(code)


def _run(argv: list[str]) -> int:
    name = argv[0] if argv else None
    if name is not None and not name.startswith("-") and name not in COMMANDS:
        raise UsageError(f"there is no command {name!r}{_nearest(name, COMMANDS)} (see vtlite --help)")
    front = Parser(prog="vtlite", description="A pure-Python LLM inference engine with readable kernels.",
                   epilog="VTLITE_DEBUG=1 shows the traceback behind an error.")
    front.add_argument("--version", action="store_true", help="show the version and exit")
    subparsers = front.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command, summary in COMMANDS.items():
        parser = subparsers.add_parser(command, help=summary, description=f"{summary[0].upper()}{summary[1:]}.",
                                       formatter_class=argparse.RawDescriptionHelpFormatter)
        if command == name:
            module, chosen = import_module(f"vtlite.commands.{command}"), parser
            module.add_arguments(parser)
    args, unknown = front.parse_known_args(argv)
    if unknown:
        (front if args.command is None else chosen).refuse(unknown)
    if args.version:
        from vtlite import __version__
        print(f"vtlite {__version__}")
        return 0
    if args.command is None:
        front.print_help()
        return 0
    return module.run(args)


def _nearest(word: str, known) -> str:
    """"; did you mean X?" if something known is near, else nothing."""
    from difflib import get_close_matches
    return "".join(f"; did you mean {match!r}?" for match in get_close_matches(word, list(known), n=1, cutoff=0.5))
