"""The first run on a machine compiles every kernel. A second process takes the list from its other end, so that both
cores compile: what it finishes, this process reads from Numba's cache when it gets there.
"""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from vtlite.cpu.launcher import compiled_before

MARK = "VTLITE_COMPILING_AHEAD"


def start_if_first_run() -> None:
    """Start the second process, if nothing was found in Numba's cache."""
    if not compiled_before() and MARK not in os.environ:
        here = str(Path(__file__).parents[2])                       # this package, not one that lies in the current folder
        path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
        subprocess.Popen([sys.executable, "-P", "-m", "vtlite.cpu.compile_ahead"],
                         env=os.environ | {MARK: "1", "PYTHONPATH": path}, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    """Compile what takes long and what a first step reaches late, in the order in which it does."""
    from vtlite.cpu import attention, gdn, launcher
    from vtlite.cpu.sampling import filter_ids, gumbel_noise

    gc.disable()                             # as in Kernel; this process does nothing else
    launcher._work_on(np.zeros_like(launcher._board))                 # nobody writes there: it ends within milliseconds
    for kernel in (gdn._gates, gdn._recurrence, attention._share):
        kernel.address
    filter_ids(np.zeros(4, np.float32), 0, 0.5, 0.0)
    gumbel_noise(0, 0, np.arange(4))


if __name__ == "__main__":
    main()
