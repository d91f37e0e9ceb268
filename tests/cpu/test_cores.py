"""Threads are as many as cores that may be used, unless somebody says otherwise."""

import os

import pytest

from vtlite.cpu import cores
from vtlite.errors import ConfigError

MACHINE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.mark.parametrize(("files", "expected"), [
    ({}, 8),
    ({"cpu.max": "max 100000\n"}, 8),
    ({"cpu.max": "150000 100000\n"}, 2),
    ({"cpu.max": "10000 100000\n"}, 1),
    ({"cpu.max": "1600000 100000\n"}, 8),
    ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
])
def test_a_containers_quota_counts(files, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cores.num_cores(tmp_path) == expected


def test_the_number_of_threads_can_be_set(monkeypatch):
    monkeypatch.delenv("VTLITE_NUM_THREADS", raising=False)
    assert 1 <= cores.num_threads.__wrapped__() <= MACHINE
    monkeypatch.setenv("VTLITE_NUM_THREADS", "3")
    assert cores.num_threads.__wrapped__() == 3
    for wrong in ("", "0", "two", "-1", "1.5"):
        monkeypatch.setenv("VTLITE_NUM_THREADS", wrong)
        with pytest.raises(ConfigError, match=f"VTLITE_NUM_THREADS is '{wrong}'"):
            cores.num_threads.__wrapped__()
