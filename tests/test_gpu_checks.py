"""bench/gpu_checks.py keeps what it found, whatever happens to the rest of the run."""

import json
from types import SimpleNamespace

import pytest

from bench import gpu_checks


@pytest.fixture
def run(monkeypatch, tmp_path):
    """run(*arguments) -> (exit code, the JSON, the log) on a device that answers to three checks, the second of which fails."""
    def fails(ceilings):
        raise RuntimeError("planted")

    def rows(name, us):
        return [lambda ceilings: [{"name": name, "case": {}, "us": us, "ok": True}]]

    gpu = SimpleNamespace(name="a GPU", driver_version=13000)
    monkeypatch.setattr(gpu_checks.device, "current", lambda: gpu)
    monkeypatch.setattr(gpu_checks, "measure_ceilings", lambda gpu: gpu_checks.Ceilings(3.0, 4.0))
    monkeypatch.setattr(gpu_checks, "groups", lambda gpu: {"norm.a": rows("norm.a", 1.0), "act.b": [fails], "act.c": rows("act.c", 2.0)})

    def run(*arguments):
        out = tmp_path / "results" / "kernels.json"
        monkeypatch.setattr("sys.argv", ["gpu_checks", "--out", str(out), *arguments])
        code = gpu_checks.main()
        return code, json.loads(out.read_text()), out.with_suffix(".log").read_text()
    return run


def test_a_failure_costs_no_other_result_and_its_traceback_is_kept(run):
    code, result, log = run()
    assert code == 1
    assert [(row["name"], row["ok"]) for row in result["rows"]] == [("norm.a", True), ("act.b", False), ("act.c", True)]
    assert result["rows"][1]["problem"] == "RuntimeError: planted"
    assert result["meta"]["ceilings"] == {"copy_tbps": 3.0, "read_tbps": 4.0, "matmul_tflops": None}
    assert "Traceback" in log and 'raise RuntimeError("planted")' in log


@pytest.mark.parametrize("only, names", [(["norm", "act.c"], ["norm.a", "act.c"]), (["act.c", "--only", "norm"], ["norm.a", "act.c"])])
def test_several_names_choose_what_runs(run, only, names):
    code, result, _ = run("--only", *only)
    assert code == 0 and [row["name"] for row in result["rows"]] == names


def test_the_file_is_whole_after_every_check(run, monkeypatch):
    seen, write = [], gpu_checks.write
    monkeypatch.setattr(gpu_checks, "write", lambda path, *content: (write(path, *content), seen.append(len(json.loads(path.read_text())["rows"]))))
    run()
    assert seen == [1, 2, 3]


def test_a_name_that_no_group_has_is_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("--only", "nrom")
    assert "no group's name starts with nrom; there are norm.a, act.b, act.c" in capsys.readouterr().err
