"""What engine/first_run.py starts beside a first run: compiles what takes long and what a first step reaches late."""

import gc

import numpy as np


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
