"""On a first run, and only then, a second process compiles the same package's kernels."""

import subprocess
from pathlib import Path

import pytest

import vtlite
from vtlite.engine import first_run


@pytest.fixture
def started(monkeypatch):
    """The commands and environments that would be started."""
    calls = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **streams: calls.append((command, env)))
    monkeypatch.delenv(first_run.MARK, raising=False)
    return calls


def test_a_first_run_starts_it_with_this_package_even_where_another_lies_in_the_folder(started, monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first_run.compile_ahead()
    (command, env), = started
    assert command[1:] == ["-P", "-m", "vtlite.cpu.compile_ahead"]          # -P: the current folder is not searched
    assert env["PYTHONPATH"].startswith(str(Path(vtlite.__file__).parents[1]))


def test_it_is_not_started_twice_or_by_itself(started, monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "cpu_1f0e").mkdir()
    (tmp_path / "cpu_1f0e" / "launcher._make-120.py311.nbi").touch()
    first_run.compile_ahead()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "new"))
    monkeypatch.setenv(first_run.MARK, "1")
    first_run.compile_ahead()
    assert not started


def test_numba_keeps_its_cache_where_it_is_looked_for():
    from vtlite.cpu import launcher
    assert Path(launcher._make.stats.cache_path).is_relative_to(first_run.numba_folder())
