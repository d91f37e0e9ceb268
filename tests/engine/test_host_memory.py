"""The memory that counts is the machine's, or the container's where that is less."""

import pytest

from vtlite.engine.host_memory import HostMemory, available_bytes, host_memory

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """machine({file: text}) -> a root with 8 GiB free of 16, and those files."""
    def build(files=()):
        files = {"proc/meminfo": f"MemTotal: {16 << 20} kB\nMemFree: 1 kB\nMemAvailable: {8 << 20} kB\nHugePages_Total: 0\n", **dict(files)}
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path
    return build


def group(folder: str, limit, usage: int, cache: int = 0) -> dict:
    return {f"sys/fs/cgroup/{folder}memory.max": f"{limit}\n", f"sys/fs/cgroup/{folder}memory.current": f"{usage}\n",
            f"sys/fs/cgroup/{folder}memory.stat": f"anon 5\ninactive_file {cache}\n"}


def test_without_a_container_the_machine_decides(machine):
    assert host_memory(machine()) == HostMemory(8 * GIB, 16 * GIB)


def test_a_container_leaves_its_limit_less_what_it_holds_but_for_file_cache(machine):
    root = machine({"proc/self/cgroup": "0::/\n", **group("", 4 * GIB, 3 * GIB, cache=GIB)})
    assert host_memory(root) == HostMemory(2 * GIB, 16 * GIB, 4 * GIB)


def test_the_tightest_of_nested_groups_counts(machine):
    root = machine({"proc/self/cgroup": "0::/a/b\n", **group("", 12 * GIB, 2 * GIB), **group("a/", 6 * GIB, 5 * GIB), **group("a/b/", "max", GIB)})
    assert host_memory(root) == HostMemory(GIB, 16 * GIB, 6 * GIB)


def test_version_1_of_cgroups_is_understood_and_no_limit_there_is_none(machine):
    folder = "sys/fs/cgroup/memory/a/memory."
    files = {"proc/self/cgroup": "5:cpu:/\n4:memory:/a\n0::/\n", f"{folder}usage_in_bytes": str(GIB), f"{folder}stat": "total_inactive_file 0\n"}
    assert host_memory(machine({**files, f"{folder}limit_in_bytes": str(3 * GIB)})) == HostMemory(2 * GIB, 16 * GIB, 3 * GIB)
    assert host_memory(machine({**files, f"{folder}limit_in_bytes": str((1 << 63) - 4096)})) == HostMemory(8 * GIB, 16 * GIB)


def test_an_overdrawn_container_has_nothing_left(machine):
    root = machine({"proc/self/cgroup": "0::/\n", **group("", 4 * GIB, 5 * GIB)})
    assert host_memory(root).available == 0


def test_here_there_is_some():
    here = host_memory()
    assert 0 < here.available <= here.total and available_bytes() > 0
