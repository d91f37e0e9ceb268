"""Where commands meet a person: the model's text, dim lines beside it, and prompts read from files."""

import sys
from collections.abc import Iterable
from pathlib import Path

from vtlite.errors import RequestError

# A model may be talked into writing escape sequences, and a terminal would obey them.
VISIBLE = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def show(text: str) -> None:
    """A piece of a model's text on standard output, at once; on a terminal, without control characters."""
    sys.stdout.write(text.translate(VISIBLE) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def stream(pieces: Iterable[str]) -> None:
    """Show an answer as it comes, and until then a spinner on standard error, if that is a terminal."""
    from rich.console import Console
    pieces = iter(pieces)
    with Console(stderr=True).status("reading the prompt (the first run also compiles for this CPU)"):
        first = next(pieces, "")
    show(first)
    for piece in pieces:
        show(piece)


def notice(text: str) -> None:
    """One line on standard error, dim on a terminal. Standard output stays the model's."""
    from rich.console import Console
    from rich.text import Text
    sys.stdout.flush()
    Console(stderr=True).print(Text(text, style="dim"), soft_wrap=True)


def read_text(path: str) -> str:
    """The text of a file, or of standard input for "-", without its last line break. RequestError if it is not text."""
    name = "standard input" if path == "-" else path
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise RequestError(f"{name} cannot be read ({error.strerror})", "prompt") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not UTF-8 text: byte {error.object[error.start]:#04x} at offset {error.start}; "
                           "convert it first, for example with iconv", "prompt") from None
    return text.removesuffix("\n").removesuffix("\r")
