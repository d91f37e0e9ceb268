"""How parallel kernels are launched: one at a time, and without burning the cores between them.

Kernels release the GIL, and Numba's own threading layer ("workqueue", used where the machine has no libgomp) ends the
process if two Python threads enter parallel kernels at once; under OpenMP the two would fight for the cores. `launch`
keeps them apart; one engine per process never waits on it.

libgomp's threads spin for milliseconds when they have nothing to do. On a machine that also does something else, that
time is taken from whoever is being waited for (measured: 0.5 tokens/s against 12 on two busy cores), so they
are told to sleep sooner, unless the environment says otherwise. It must be said before libgomp is loaded.
"""

import os
import threading

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

launch = threading.Lock()
