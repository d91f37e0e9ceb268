"""JSON objects read from a checkpoint: duplicate keys, NaN and absurd nesting are refused, not guessed at."""

import json
from pathlib import Path
from reprlib import Repr

from vtlite.errors import CheckpointError

_short = Repr()
_short.maxstring = _short.maxother = 120
_short.maxlist = _short.maxtuple = 8


def quote(value: object) -> str:
    """repr of a value found in a file, cut short so that a hostile file cannot flood the message."""
    return _short.repr(value)


def parse_object(text: bytes, source: str) -> dict:
    """The JSON object in `text`. CheckpointError starting with `source` if it is anything else."""

    def refuse_duplicates(pairs: list[tuple[str, object]]) -> dict:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise CheckpointError(f"{source}: key {quote(twice)} appears twice in one JSON object")
        return members

    def refuse_constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=refuse_duplicates, parse_constant=refuse_constant)
    except RecursionError:
        raise CheckpointError(f"{source}: JSON nested too deeply to be genuine") from None
    except ValueError as error:   # bad UTF-8, bad JSON, or a number of thousands of digits
        raise CheckpointError(f"{source}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{source}: expected a JSON object, found {type(value).__name__}")
    return value


def read_object(path: Path) -> dict:
    """The JSON object in the file `path`; CheckpointError names the file and what is wrong with it."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    return parse_object(text, str(path))
