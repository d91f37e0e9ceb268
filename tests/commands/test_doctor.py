"""`vtlite doctor` tells what is there, what is missing, and what to do about it."""

import json
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec

import numpy as np
import pytest

from vtlite.cli import main
from vtlite.commands import doctor, nvidia
from vtlite.cuda import cublas_record


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


CLASSES = [{"rows": 5120, "K": 17408, "kind": "residual", "most_rows": most, "used": not why, "why": why}
           for most, why in ((256, ""), (512, ""), (1024, "12 of 5242880 outputs of 1024 rows differ"))]


@pytest.fixture
def with_nvmath(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: name == "nvmath" or find_spec(name))


def test_each_class_of_layers_says_whether_cublaslt_computes_it_and_if_not_why(examine, with_nvmath, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cublas_record.write("NVIDIA H200", "13.1.0", CLASSES)
    check = examine()[1]["cuBLASLt, 5120 x 17408, residual"]
    assert check["ok"] is None and check["next"]
    assert check["found"] == ("used for up to 256, 512 rows; not for up to 1024: 12 of 5242880 outputs of 1024 rows differ "
                              "(at the last start on NVIDIA H200, with version 13.1.0)")
    cublas_record.write("NVIDIA H200", "13.1.0", CLASSES[:2])
    assert examine()[1]["cuBLASLt, 5120 x 17408, residual"]["ok"] is True


def test_a_cublaslt_that_cannot_be_opened_says_why(examine, with_nvmath, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cublas_record.write("NVIDIA H200", "", [], "OSError: no libcublasLt.so.13")
    code, checks, _ = examine()
    assert code == 0 and checks["cuBLASLt"]["found"] == "not used on NVIDIA H200: OSError: no libcublasLt.so.13"


def test_without_the_extra_nothing_is_said_of_layers(examine, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cublas_record.write("NVIDIA H200", "13.1.0", CLASSES)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "nvmath" else find_spec(name))
    checks = examine()[1]
    assert not [name for name in checks if name.startswith("cuBLASLt")] and "extra cublas" in checks
