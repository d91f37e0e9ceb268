"""One parallel kernel at a time.

Numba's own threading layer ("workqueue", used where the machine has no libgomp) ends the process if two Python threads
enter parallel kernels at once; with OpenMP the two would share the cores badly. Kernels release the GIL, so the lock
is what keeps them apart. One engine per process never waits on it.
"""

import threading

launch = threading.Lock()
