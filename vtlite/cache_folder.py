"""Where this user's caches lie, by the XDG base directory specification."""

import os
from pathlib import Path


def cache_folder(application: str = "vtlite") -> Path:
    """$XDG_CACHE_HOME/vtlite, by default ~/.cache/vtlite."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / application
