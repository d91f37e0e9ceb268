"""How many threads may share the work: the cores of this process, or the share of them that its container (a cgroup) grants."""

import math
import os
from functools import cache
from pathlib import Path

from vtlite.errors import ConfigError

ROOT = Path("/")


@cache
def num_threads() -> int:
    """VTLITE_NUM_THREADS, or as many as this process may use cores. ConfigError if that is not a number from 1 on."""
    cores = num_cores()
    wanted = os.environ.get("VTLITE_NUM_THREADS", str(cores))
    if not wanted.isdecimal() or int(wanted) < 1:
        raise ConfigError(f"VTLITE_NUM_THREADS is {wanted!r}; it should be a number of threads such as {cores}")
    return int(wanted)


def num_cores(root: Path = ROOT) -> int:
    """Cores that this process may run on, less what a quota below `root`/sys/fs/cgroup withholds, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *_quotas(root / "sys/fs/cgroup")]))


def _quotas(mount: Path):
    """Cores' worth of time per period, of cgroups version 2 ("max 100000") and 1 (-1 = no limit)."""
    version_1 = mount / "cpu/cpu.cfs_quota_us", mount / "cpu/cpu.cfs_period_us"
    for words in (_words(mount / "cpu.max"), [word for path in version_1 for word in _words(path)]):
        if len(words) == 2 and words[0].isdecimal():
            yield math.ceil(int(words[0]) / int(words[1]))


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []
