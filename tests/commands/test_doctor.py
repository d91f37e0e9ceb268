"""`vtlite doctor` tells what is there, what is missing, and what to do about it."""

import json
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

from vtlite.cli import main
from vtlite.commands import doctor, nvidia


@pytest.fixture
def examine(monkeypatch, tmp_path, capsys):
    """Run the doctor with an empty cache folder; returns (exit code, checks by name, uses by name)."""
    def run():
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        code = main(["doctor", "--json"])
        shown = json.loads(capsys.readouterr().out)
        assert shown["ok"] == (code == 0)
        return code, {c["name"]: c for c in shown["checks"]}, {u["name"]: u for u in shown["would_run"]}
    return run


MAIN_COMMAND = "generate, chat, serve on the CPU"


def test_a_sound_installation_would_run_and_is_described(examine):
    code, checks, uses = examine()
    assert code == 0 and uses[MAIN_COMMAND]["ok"]
    assert checks["numpy"]["found"] == np.__version__
    assert "threads (VTLITE_NUM_THREADS" in checks["numba"]["found"]
    assert "GiB free" in checks["memory"]["found"]
    assert all(check["ok"] or check["next"] for check in checks.values()), "what is missing has a next action"


def test_memory_is_the_container_s_where_that_is_less(examine, monkeypatch):
    from vtlite.engine import host_memory
    monkeypatch.setattr(host_memory, "host_memory", lambda: host_memory.HostMemory(1 << 29, 16 << 30, 2 << 30))
    memory = examine()[1]["memory"]
    assert memory["found"] == "0.5 GiB free of the 2.0 GiB that this container may use (the machine has 16.0 GiB)"
    assert "close other programs" in memory["next"]


def test_tables_hold_every_check(examine, monkeypatch, capsys):
    _, checks, uses = examine()
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in [*checks, *uses])


def test_a_missing_extra_says_how_to_get_it_and_does_not_fail(examine, monkeypatch):
    def nothing_installed(package):
        raise PackageNotFoundError(package)
    monkeypatch.setattr(doctor, "version", nothing_installed)
    code, checks, uses = examine()
    assert code == 0
    assert checks["extra hub"]["ok"] is None
    assert checks["extra hub"]["next"] == uses["models from the Hugging Face Hub"]["next"] == 'pip install "vtlite[hub]"'


def test_a_broken_base_package_means_that_nothing_would_run(examine, monkeypatch):
    def broken(module):
        raise ImportError("libopenblas.so: cannot open shared object file")
    monkeypatch.setattr(doctor, "import_module", broken)
    code, checks, uses = examine()
    assert code == 1
    assert checks["numpy"]["found"] == "ImportError: libopenblas.so: cannot open shared object file"
    assert uses[MAIN_COMMAND] == {"name": MAIN_COMMAND, "ok": False, "next": "pip install --force-reinstall numpy",
                                  "found": "no: numpy, ImportError: libopenblas.so: cannot open shared object file"}


def test_an_engine_that_cannot_be_imported_would_not_run(examine, monkeypatch):
    monkeypatch.setattr(doctor, "ENGINE", ("vtlite.engine.llm", "vtlite.lost"))
    code, checks, uses = examine()
    assert code == 1
    assert checks["engine"]["found"] == "vtlite.lost: ModuleNotFoundError: No module named 'vtlite.lost'"
    assert not uses[MAIN_COMMAND]["ok"]


def test_a_cache_folder_that_cannot_be_made_is_a_problem(examine, monkeypatch, tmp_path, capsys):
    (tmp_path / "vtlite").write_text("a file where the folder should be")
    code, checks, uses = examine()
    assert code == 1
    assert "cannot be written (Not a directory)" in checks["cache folder"]["found"]
    assert "XDG_CACHE_HOME" in uses[MAIN_COMMAND]["next"]


def test_gpus_are_named(examine, monkeypatch):
    monkeypatch.setattr(nvidia, "driver", lambda: ((13, 2), [nvidia.Device("NVIDIA H200", (9, 0), 139 << 30)]))
    assert examine()[1]["NVIDIA GPU"]["found"] == "NVIDIA H200 (sm_90, 139 GiB); driver for CUDA 13.2"
    monkeypatch.setattr(nvidia, "driver", lambda: ((12, 4), []))
    found = examine()[1]["NVIDIA GPU"]
    assert (found["ok"], found["found"]) == (None, "a driver for CUDA 12.4, but no device")
