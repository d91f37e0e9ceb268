"""`vtlite kernels`: lists, shows and compiles ahead; what it cannot do it says in a sentence."""

import json

import pytest

from vtlite.cli import main


@pytest.fixture(autouse=True)
def no_cubins(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VTLITE_CUBINS", raising=False)
    monkeypatch.setenv("VTLITE_DEVICE", "emulator")


def test_without_cubins_the_list_says_what_to_do(capsys):
    assert main(["kernels", "list"]) == 0
    output = capsys.readouterr().out
    assert "copy_kernel" in output and "none is compiled yet: vtlite kernels compile" in output


def test_a_kernel_is_shown_with_its_device_functions_and_the_ptx_of_its_primitives(capsys):
    assert main(["kernels", "show", "rms_norm"]) == 0
    output = capsys.readouterr().out
    assert "def rms_norm_kernel(" in output and "def rsqrt(x):" in output
    assert "sqrt.rn.f32 $0, $a;" in output


def test_what_is_compiled_ahead_is_found_listed_and_shown(tmp_path, monkeypatch, capsys):
    pytest.importorskip("numba_cuda_mlir", reason='compiling kernels needs pip install "vtlite[cuda]", which the extra test brings')
    table = tmp_path / "table.json"
    assert main(["kernels", "compile", "copy", "--chip", "sm_80", "--chip", "sm_90a", "--out", str(tmp_path), "--jobs", "1",
                 "--json", str(table)]) == 0
    assert "2 cubins of 1 specialised kernels" in capsys.readouterr().out
    rows = json.loads(table.read_text())["rows"]
    assert [(row["kernel"], row["chip"], row["spill_bytes"], row["problem"]) for row in rows] == \
        [("copy_kernel", chip, 0, "") for chip in ("sm_80", "sm_90a")]
    monkeypatch.setenv("VTLITE_CUBINS", str(tmp_path))
    assert main(["kernels", "list", "copy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows
    assert main(["kernels", "show", "copy", "--ptx", "--chip", "sm_80"]) == 0
    assert ".target sm_80" in capsys.readouterr().out


@pytest.mark.parametrize("arguments, sentence", [
    (["list", "rms_nrm_kernel"], "there is no kernel 'rms_nrm_kernel'; did you mean rms_norm_kernel?"),
    (["show", "copy", "--set", "SCALE=2"], "copy_kernel has no constant SCALE"),
    (["show", "copy", "--set", "SCALE"], "--set SCALE should be NAME=VALUE"),
    (["compile", "--chip", "sm_75"], "sm_75 is not a chip that vtlite compiles for"),
    (["time"], "the emulator has no speed worth measuring"),
    (["time", "nrom"], "no op's name starts with nrom"),
    (["frobnicate"], "invalid choice: 'frobnicate'"),
])
def test_mistakes_are_sentences(arguments, sentence, capsys):
    assert main(["kernels", *arguments]) == 2
    assert sentence in capsys.readouterr().err
