"""On a first run, and only then, a second process compiles the same package's kernels."""

import gc
import subprocess
from pathlib import Path

import numpy as np
import pytest

import vtlite
from vtlite import cpu
from vtlite.cpu import compile_ahead


@pytest.fixture
def started(monkeypatch):
    """The commands and environments that would be started."""
    calls = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **streams: calls.append((command, env)))
    monkeypatch.delenv(compile_ahead.MARK, raising=False)
    return calls


def test_a_first_run_starts_it_with_this_package_even_where_another_lies_in_the_folder(started, monkeypatch):
    monkeypatch.setattr(compile_ahead, "compiled_before", lambda: False)
    compile_ahead.start_if_first_run()
    (command, env), = started
    assert command[1:] == ["-P", "-m", "vtlite.cpu.compile_ahead"]          # -P: the current folder is not searched
    assert env["PYTHONPATH"].startswith(str(Path(vtlite.__file__).parents[1]))


def test_it_is_not_started_twice_or_by_itself(started, monkeypatch):
    monkeypatch.setattr(compile_ahead, "compiled_before", lambda: True)
    compile_ahead.start_if_first_run()
    monkeypatch.setattr(compile_ahead, "compiled_before", lambda: False)
    monkeypatch.setenv(compile_ahead.MARK, "1")
    compile_ahead.start_if_first_run()
    assert not started


def test_what_it_runs_is_valid_and_leaves_a_trace_in_the_cache():
    try:
        compile_ahead.main()
    finally:
        gc.enable()
    wide = np.ones((64, 2048), np.float32)
    cpu.linear(wide, wide)                            # large enough to use the parallel launcher
    assert compile_ahead.compiled_before()
