"""bench/report: what stands in bench/results stands in RESULTS.md, beside its peer and its limit, bold where it falls short."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench.report import limits, rows
from bench.report.__main__ import page
from vtlite.cuda import gdn

RESULTS = Path(__file__).parents[1] / "bench" / "results"
META = {"gpu": "a GPU", "driver": 13010, "versions": {"torch": "2.11.0"}, "commit": "abc1234", "date": "2026-11-29",
        "ceilings": {"copy_tbps": 4.0, "read_tbps": 4.5, "matmul_tflops": None}}


@pytest.fixture
def report(tmp_path):
    """report(rows, file=rows) -> the page of h200-kernels.json with `rows`, and of other files, as lines."""
    def write(own: list[dict], **others: list[dict]) -> list[str]:
        for name, content in {"h200-kernels": own, **others}.items():
            content = [{"ok": True, **row} for row in content]
            (tmp_path / f"{name.replace('_', '-')}.json").write_text(json.dumps({"meta": META, "rows": content}))
        return page(tmp_path).splitlines()
    return write


def linear(us: float, what: str = "linear", T: int = 1, name: str = "linear.bf16", **more) -> dict:
    return {"name": name, "case": {"T": T, "N": 4096, "K": 4096, "what": what}, "us": us, "bytes": 32e6, "share": 0.5, **more}


def torch(us: float, T: int = 1) -> dict:
    return {"name": "peer.torch.linear", "case": {"T": T, "N": 4096, "K": 4096}, "us": us}


def test_the_launched_variant_makes_the_row_with_its_peer_and_the_fastest_other(report):
    lines = report([linear(10.0), linear(9.0, "STAGES 6"), linear(8.0, "STAGES 4", ok=False), torch(12.0)])
    assert "| op | rows | N x K | us | TB/s | share of copy | torch, us | times torch | fastest other, us |" in lines
    assert "| linear.bf16 | 1 | 4096 x 4096 | 10.0 | 3.20 | 0.50 | 12.0 | 1.20 | 9.00 (STAGES 6) |" in lines


def test_a_figure_short_of_its_limit_is_bold_in_its_table_and_beside_the_limit(report):
    lines = report([linear(10.0), torch(8.0), linear(10.0, T=16), torch(8.0, T=16)])
    assert "| linear.bf16 | 1 | 4096 x 4096 | 10.0 | 3.20 | 0.50 | 8.00 | **0.80** |" in lines
    assert "| linear.bf16 | 16 | 4096 x 4096 | 10.0 | 3.20 | 0.50 | 8.00 | 0.80 |" in lines             # nothing is promised of 16
    limit = next(line for line in lines if line.startswith("| 5 | linear, 1 row, small: times torch | 1.00 | 1.30 |"))
    assert "**0.80: 1 of 1 short or wrong**, not measured: N 5120, K 5120, T 1; N 1024, K 5120, T 1" in limit


def test_a_limit_holds_in_its_direction():
    row = rows.Row("f", {}, "launch.host", {"case": "prepared"}, {}, {"us": 8.1})
    limit = next(limit for limit in limits.LIMITS if limit.names == "launch.host")
    assert limit.is_missed(row)
    row.values["us"] = 7.9
    assert not limit.is_missed(row)


def test_of_peers_with_the_same_case_the_next_one_counts(report):
    lines = report([linear(10.0), torch(20.0), linear(10.0, name="linear.silu_and_mul"), torch(30.0)])
    assert "| linear.bf16 | 1 | 4096 x 4096 | 10.0 | 3.20 | 0.50 | 20.0 | 2.00 |" in lines
    assert "| linear.silu_and_mul | 1 | 4096 x 4096 | 10.0 | 3.20 | 0.50 | 30.0 | 3.00 |" in lines


def test_a_peer_of_another_run_is_marked_and_gives_way_to_one_of_the_same(report):
    prefill = {"name": "gdn.prefill", "case": {"S": 1, "T": 1024, "Hv": 48, "warps": 4, "stages": 2}, "us": 100.0}
    fla = {"name": "peer.fla.prefill", "case": {"S": 1, "T": 1024, "Hv": 48}, "us": 150.0}
    assert "| 1 | 1024 | 48 | 100.0 | 150.0 | 1.50† |" in report([prefill], h200_peers=[fla])
    assert "| 1 | 1024 | 48 | 100.0 | 120.0 | 1.20 |" in report([prefill, {**fla, "us": 120.0}], h200_peers=[fla])


def test_a_model_is_shown_beside_vllm_and_the_parts_of_its_step_add_up(report):
    case = "qwen3-8b, 32 in, 128 out, concurrency 1"
    step = {"name": "step.decode", "case": case, "us": 5e3, "bytes": 15e9, "share": 0.75, "floor_us": 3750.0,
            "peer": "vLLM", "peer_us": 4e3, "ratio": 0.8}
    parts = [{"name": "step.part", "case": f"{case}: {name}", "us": us}
             for name, us in (("a_kernel", 4e3), ("b_kernel", 1.0), ("host", 999.0))]
    lines = report([], h200_models=[step, *parts])
    assert "| qwen3-8b | 1 | 5.00 | 15.0 | 3.75 | **0.75** | 0.67 | 4.00 | 0.80 |" in lines
    begin = lines.index("| ms of a step | 1 request |")
    assert lines[begin + 2 : begin + 6] == ["| a | 4.00 |", "| host | 1.00 |", "| others (1) | 0.00 |", "| all | 5.00 |"]


def test_what_is_wrong_or_failed_is_bold_or_listed_with_its_reason(report):
    lines = report([linear(10.0, ok=False), {"name": "norm.rms_norm", "case": "", "ok": False, "problem": "RuntimeError: a | b"}])
    assert any(line.startswith("| linear.bf16 | 1 | 4096 x 4096 | **10.0 (wrong)** |") for line in lines)
    assert "| norm.rms_norm | - | - | RuntimeError: a \\| b |" in lines
    assert any(line.startswith("| 4 | norms: share") and "1 of 1 short or wrong" in line for line in lines)


def test_suites_are_counted(report):
    lines = report([], h200_tests=[{"name": "tests.gpu", "case": "pytest -m gpu", "passed": 900, "failed": 2, "ok": False},
                                   {"name": "sanitizer.memcheck", "case": "ops", "errors": 0}])
    assert "| tests.gpu | pytest -m gpu | 900 | **2** | - |" in lines
    assert "| sanitizer.memcheck | ops | - | - | 0 |" in lines


def test_every_table_says_which_run_it_is_from(report):
    assert ("*`h200-kernels.json` (copy 4.00 TB/s, read 4.50 TB/s): a GPU, driver 13.1, commit abc1234, 2026-11-29, torch 2.11.0.*"
            in report([linear(10.0)]))


def test_the_results_that_are_kept_are_all_shown():
    made = page(RESULTS)
    assert [path.name for path in RESULTS.glob("*.json") if path.name != rows.ELSEWHERE and f"`{path.name}`" not in made] == []


@pytest.mark.parametrize("S", [1, 8, 32, 128])
@pytest.mark.parametrize("Hv", [32, 48])
def test_the_report_knows_which_variants_of_gated_delta_nets_are_launched(S, Hv, monkeypatch):
    launched = []
    gpu = SimpleNamespace(num_sms=132, chip="sm_90a", empty=lambda *_: None,
                          launch=lambda kernel, *_: launched.append(kernel.constants))
    monkeypatch.setattr(gdn, "current", lambda: gpu)
    monkeypatch.setattr(gdn, "need_contiguous", lambda **_: None)
    monkeypatch.setattr(gdn, "_gate_stride", lambda *_: 0)
    qkv = SimpleNamespace(shape=(S, (32 + Hv) * 128))
    state = SimpleNamespace(shape=(S, Hv, 128, 128), dtype=np.float32, view=lambda _: None)
    gdn.decode(qkv, None, None, None, None, state, None, range(S), out=None)
    gdn.prefill(qkv, None, None, None, None, state, SimpleNamespace(sequences=range(S), chunks=range(2 * S)), out=None)
    (decode, _, scan) = launched

    def row(name, **how):
        return rows.Row("f", {}, name, {"S": S, "Hv": Hv}, how, {})

    for name in ("gdn.decode", "gdn.decode.bf16_state"):
        assert rows.is_launched(row(name, what=f"v_tile {decode['V_TILE']}"))
    assert rows.is_launched(row("gdn.prefill", warps=scan["WARPS"], stages=scan["STAGES"]))


def test_a_layer_of_many_rows_is_shown_with_the_tile_that_is_chosen_for_it_now():
    def row(T, N, what):
        return rows.Row("f", {}, "linear.bf16.prefill", {"T": T, "N": N, "K": 5120, "gated": False}, {"what": what}, {})

    assert rows.is_launched(row(8192, 5120, "wgmma 128x256")) and rows.is_launched(row(1024, 1024, "wgmma 64x128"))
    assert not rows.is_launched(row(8192, 5120, "linear"))
