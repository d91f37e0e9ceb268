"""The first run on a machine compiles every kernel. A second process takes the list from its other end, so that both
cores compile: what it finishes, this process reads from Numba's cache when it gets there.
"""

import gc
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

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
    """Run, on tiny inputs, the operations that take long to compile and that a first step reaches late."""
    from vtlite import cpu
    from vtlite.cpu.sampling import filter_ids, gumbel_noise

    gc.disable()                             # as in Kernel; this process does nothing else

    def zeros(*shape):
        return np.zeros(shape, np.float32)

    batch = SimpleNamespace(query_start_loc=np.array([0, 1]), seq_lens=np.array([1]), state_slots=np.array([0]),
                            block_table=np.zeros((1, 1), np.int32))
    cpu.gated_delta_rule(zeros(1, 1, 8), zeros(1, 1, 8), zeros(1, 1, 8), zeros(1, 1), zeros(1, 1), zeros(1, 1, 8, 8), batch)
    cpu.gdn_gates(zeros(1, 1), zeros(1, 1), zeros(1), zeros(1))
    cpu.paged_attention(zeros(1, 2, 8), zeros(2, 1, 8, 2, 8), batch, 1.0)
    gumbel_noise(0, 0, np.arange(4))
    filter_ids(zeros(4), 0, 0.5, 0.0)
    cpu.silu_and_mul(zeros(1, 8))


if __name__ == "__main__":
    main()
