"""What the last start with the extra `cublas` found, kept in the user's cache folder for `vtlite doctor`."""

import json
import os
from pathlib import Path

from vtlite.cache_folder import cache_folder


def path() -> Path:
    return cache_folder() / "cublas.json"


def write(gpu: str, version: str, classes: list[dict], problem: str = "") -> None:
    """`classes` as linear_cublas.CublasLinear.classes gives them. A folder that cannot be written does no harm."""
    whole = path().with_suffix(f".{os.getpid()}")
    try:
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(json.dumps({"gpu": gpu, "version": version, "problem": problem, "classes": classes}, indent=1) + "\n")
        whole.replace(path())
    except OSError:
        pass


def read() -> dict | None:
    """None: there was no such start."""
    try:
        return json.loads(path().read_text())
    except (OSError, ValueError):
        return None
