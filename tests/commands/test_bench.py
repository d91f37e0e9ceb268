"""`vtlite bench`: figures that agree with each other."""

import json

import pytest

from vtlite.cli import main
from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine
from vtlite.engine.measure import closed_loop, step_bytes

OPTIONS = ["--device", "cpu", "--input-len", "20", "--output-len", "6", "--concurrency", "2"]


@pytest.fixture(autouse=True)
def small_copy(monkeypatch):
    monkeypatch.setattr("vtlite.engine.measure.COPIED_AT_ONCE", 1 << 20)
    monkeypatch.setattr("vtlite.engine.measure.TIMED_STEPS", 3)


def test_latency_shows_a_step_beside_its_floor_and_parts_that_add_up(tiny_checkpoint, tmp_path, capsys):
    file = tmp_path / "rows.json"
    assert main(["bench", "latency", str(tiny_checkpoint("qwen3")), *OPTIONS, "--json", str(file)]) == 0
    text = capsys.readouterr().out
    for word in ("output tokens/s", "bytes per decode step", "share of the floor reached", "linear", "the step"):
        assert word in text
    rows = json.loads(file.read_text())["rows"]
    step = next(row for row in rows if row["name"] == "step.decode")
    assert step["share"] == pytest.approx(step["floor_us"] / step["us"])
    assert step["floor_us"] == pytest.approx(step["bytes"] / step["ceiling_tbps"] / 1e6)
    parts = {row["case"]: row["us"] for row in rows if row["name"] == "step.part"}
    assert {"linear", "paged_attention", "sample", "all else"} <= parts.keys() and parts["all else"] > 0


def test_throughput_answers_every_prompt(tiny_checkpoint, capsys):
    assert main(["bench", "throughput", str(tiny_checkpoint("qwen3")), *OPTIONS, "--num-prompts", "5", "--load-format", "dummy"]) == 0
    assert "time to the first token" in capsys.readouterr().out


def test_recurrent_states_may_be_in_bfloat16_where_there_are_any(tiny_checkpoint, tmp_path, capsys):
    file, option, dtypes = tmp_path / "rows.json", "--mamba-ssm-cache-dtype", ("float32", "bfloat16")
    num_bytes = []
    for dtype in dtypes:
        assert main(["bench", "throughput", str(tiny_checkpoint("qwen3_5")), *OPTIONS, option, dtype, "--json", str(file)]) == 0
        content = json.loads(file.read_text())
        assert content["meta"]["mamba_ssm_cache_dtype"] == dtype
        num_bytes.append(next(row["bytes"] for row in content["rows"] if row["name"] == "step.decode"))
    assert num_bytes[0] - num_bytes[1] == 2 * 2 * 3 * 4 * 16 * 24 * 2              # both ways, of 2 sequences, in 3 delta nets
    assert main(["bench", "throughput", str(tiny_checkpoint("qwen3")), *OPTIONS, option, "bfloat16"]) == 2
    assert "mamba_ssm_cache_dtype is bfloat16, but Qwen3ForCausalLM has no recurrent state" in capsys.readouterr().err


def test_a_closed_loop_keeps_its_clients_busy(tiny_checkpoint):
    engine = Engine(tiny_checkpoint("qwen3"), EngineConfig(device="cpu", num_blocks=64, max_num_seqs=3))
    run = closed_loop(engine, input_len=10, output_len=4, concurrency=3, num_requests=7)
    assert (run.num_input_tokens, run.num_output_tokens) == (70, 28)
    assert len(run.first_token) == len(run.per_token) == 7
    assert 0 < len(run.decode_steps) == len(run.contexts) and not engine.has_work


def test_a_step_moves_its_weights_once_and_each_sequences_keys(tiny_checkpoint):
    """qwen3: untied, so the embedding is not read; three layers of 2 KV heads of 20."""
    engine = Engine(tiny_checkpoint("qwen3"), EngineConfig(device="cpu", num_blocks=8))
    stored = sum(file.stat().st_size for file in engine.directory.glob("*.safetensors"))
    one, two = step_bytes(engine.model, 1, 100), step_bytes(engine.model, 2, 100)
    assert two - one == 3 * 100 * 2 * 2 * 20 * 4
    assert abs(one - (two - one) - (stored - engine.model.embed_tokens.nbytes)) < 5000            # the file's header


@pytest.mark.parametrize("option, sentence", [(["--output-len", "2"], "output_len should be at least 3, found 2"),
                                              (["--concurrency", "0"], "concurrency should be at least 1, found 0")])
def test_sizes_that_cannot_be_timed_are_refused(option, sentence, capsys):
    assert main(["bench", "latency", "tiny-dense", *option]) == 2
    assert sentence in capsys.readouterr().err
