"""How much memory this process may take: what the machine has free, or what its container (a cgroup) leaves, if that is less."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True)
class HostMemory:
    """Bytes that can be had without swapping, and the limit of the container, None where there is none below the machine's memory."""

    available: int
    total: int
    container_limit: int | None = None


def available_bytes() -> int:
    """Memory that can be had without swapping, in bytes."""
    return host_memory().available


def host_memory(root: Path = ROOT) -> HostMemory:
    """What /proc and /sys/fs/cgroup below `root` say."""
    meminfo = _numbers(root / "proc/meminfo")
    if "MemAvailable" not in meminfo:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return HostMemory(total // 2, total)                              # no better figure on this system
    available, total = 1024 * meminfo["MemAvailable"], 1024 * meminfo["MemTotal"]
    limits = [(limit, left) for limit, left in _limits(root) if limit < total]
    if not limits:
        return HostMemory(available, total)
    return HostMemory(max(0, min(available, *(left for _, left in limits))), total, min(limit for limit, _ in limits))


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, bytes left) of each cgroup around this process, version 2 or 1: the tightest counts. File cache can be taken back."""
    memberships = root / "proc/self/cgroup"                               # lines 0::/path and 4:memory:/path
    for line in memberships.read_text().splitlines() if memberships.exists() else ():
        _, controllers, group = line.split(":", 2)
        if controllers in ("", "memory"):
            mount = root / "sys/fs/cgroup" / controllers
            limit_file, usage_file, cache = (("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file") if controllers
                                             else ("memory.max", "memory.current", "inactive_file"))
            folder = mount / group.lstrip("/")
            for place in (folder, *folder.parents):
                if not place.is_relative_to(mount):
                    break
                limit, usage = _number(place / limit_file), _number(place / usage_file)
                if limit is not None and usage is not None:
                    yield limit, limit - usage + _numbers(place / "memory.stat").get(cache, 0)


def _number(path: Path) -> int | None:
    """The number that a file holds; None for "max" or no file."""
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdecimal() else None


def _numbers(path: Path) -> dict[str, int]:
    """The "name number" lines of a file, {} where there is none."""
    words = [line.replace(":", " ").split() for line in (path.read_text().splitlines() if path.exists() else ())]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}
