"""The first run on a machine compiles every kernel of the CPU. A second process, cpu/compile_ahead.py, takes the list from its other
end, so that both cores compile: what it finishes, this process reads from Numba's cache when it gets there.

It is started before this process imports Numba, which takes a while itself; so the cache is looked for without Numba's help.
"""

import os
import subprocess
import sys
from pathlib import Path

from vtlite.cache_folder import cache_folder

MARK = "VTLITE_COMPILING_AHEAD"
PACKAGE = Path(__file__).parents[1]


def compile_ahead() -> None:
    """Start the second process, if nothing is found in Numba's cache."""
    if not compiled_before() and MARK not in os.environ:
        here = str(PACKAGE.parent)                                  # this package, not one that lies in the current folder
        path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
        subprocess.Popen([sys.executable, "-P", "-m", "vtlite.cpu.compile_ahead"],
                         env=os.environ | {MARK: "1", "PYTHONPATH": path}, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def compiled_before() -> bool:
    """Whether a cache of Numba holds the launcher, which stands for all kernels."""
    return any(numba_folder().rglob("launcher._make-*.nbi"))


def numba_folder() -> Path:
    """Where Numba keeps what it compiles: as configured, or beside the sources, or where these cannot be written the user's."""
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(configured)
    if os.access(PACKAGE / "cpu", os.W_OK):
        return PACKAGE / "cpu" / "__pycache__"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "numba"
    return cache_folder("numba")
