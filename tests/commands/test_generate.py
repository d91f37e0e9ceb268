"""`vtlite generate`: what it prints where, and what it refuses."""

import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from vtlite.cli import main
from vtlite.engine.llm import LLM
from vtlite.engine.sync_loop import SyncLoop

CPU = ["--device", "cpu"]


def generate(model, *arguments) -> int:
    return main(["generate", str(model), *CPU, *arguments])


def expected(model, prompt_ids_of, **given):
    """The answer that the library gives."""
    llm = LLM(model, device="cpu")
    return llm.generate([prompt_ids_of(llm)], llm.engine.sampling_params(**given))[0]


@pytest.fixture
def stdin(monkeypatch):
    """stdin(data) makes standard input a pipe that holds these bytes."""
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


@pytest.fixture
def terminal(monkeypatch):
    """Standard input is a terminal that nobody types at."""
    class Terminal(io.StringIO):
        def isatty(self):
            return True
    monkeypatch.setattr(sys, "stdin", Terminal())


def test_standard_output_is_the_text_and_figures_go_to_standard_error(tiny_checkpoint, capsys):
    assert generate(tiny_checkpoint("qwen3"), "--prompt", "Once", "--max-tokens", "12", "--seed", "7") == 0
    captured = capsys.readouterr()
    answer = expected(tiny_checkpoint("qwen3"), lambda llm: llm.tokenizer.encode("Once"), max_tokens=12, seed=7)
    assert captured.out == answer.outputs[0].text + "\n"
    assert re.fullmatch(r"4 prompt tokens; 12 tokens, .* cut off at --max-tokens 12; seed 7\n", captured.err)


def test_a_chat_template_is_used_unless_raw(chat_checkpoint, capsys):
    given = ["--prompt", "hi", "--max-tokens", "3", "--temperature", "0", "--json"]
    prompts = {
        (): "<user>hi<assistant>",
        ("--system", "be brief"): "<system>be brief<user>hi<assistant>",
        ("--raw",): "hi",
    }
    for flags, prompt in prompts.items():
        assert generate(chat_checkpoint, *given, *flags) == 0
        shown = json.loads(capsys.readouterr().out)
        answer = expected(chat_checkpoint, lambda llm: llm.tokenizer.encode(prompt), max_tokens=3, temperature=0.0)
        assert shown["token_ids"] == answer.outputs[0].token_ids
        assert shown["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": 3, "total_tokens": len(prompt) + 3}


def test_system_needs_a_chat_template(tiny_checkpoint, capsys):
    assert generate(tiny_checkpoint("qwen3"), "--prompt", "hi", "--system", "x") == 2
    assert "has no chat template" in capsys.readouterr().err
    assert generate(tiny_checkpoint("qwen3"), "--prompt", "hi", "--system", "x", "--raw") == 2
    assert "give one of the two" in capsys.readouterr().err


def test_json_is_one_object_with_all_that_is_known(tiny_checkpoint, capsys):
    assert generate(tiny_checkpoint("qwen3"), "--prompt", "Once", "--max-tokens", "4", "--logprobs", "2", "--json") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    shown = json.loads(captured.out)
    answer = expected(tiny_checkpoint("qwen3"), lambda llm: llm.tokenizer.encode("Once"),
                      max_tokens=4, seed=shown["seed"], logprobs=2).outputs[0]
    assert (shown["text"], shown["token_ids"], shown["finish_reason"]) == (answer.text, answer.token_ids, "length")
    chosen = [at[token_id].logprob for at, token_id in zip(answer.logprobs, answer.token_ids)]
    assert [at["logprob"] for at in shown["logprobs"]] == chosen
    for at in shown["logprobs"]:
        assert [entry["rank"] for entry in at["top"]] == [1, 2]


def test_a_seed_gives_the_same_answer_and_without_one_it_is_drawn_and_shown(tiny_checkpoint, capsys):
    def answer(*flags):
        generate(tiny_checkpoint("qwen3"), "--prompt", "Once", "--max-tokens", "24", "--json", *flags)
        shown = json.loads(capsys.readouterr().out)
        return shown["seed"], shown["token_ids"]

    assert answer("--seed", "5") == answer("--seed", "5")
    drawn, other = answer(), answer()
    assert drawn[0] != other[0]
    assert answer("--seed", str(drawn[0])) == drawn


def test_logprobs_are_a_table_after_the_text(tiny_checkpoint, capsys):
    model = tiny_checkpoint("qwen3")
    assert generate(model, "--prompt", "Once", "--max-tokens", "3", "--logprobs", "1", "--seed", "7") == 0
    answer = expected(model, lambda llm: llm.tokenizer.encode("Once"), max_tokens=3, seed=7, logprobs=1)
    lines = capsys.readouterr().out.removeprefix(answer.outputs[0].text + "\n").splitlines()
    assert lines[0].split() == ["token", "logprob", "probability", "rank", "alternatives"]
    assert len(lines) == 4
    for line, at, token_id in zip(lines[1:], answer.outputs[0].logprobs, answer.outputs[0].token_ids):
        assert f"{at[token_id].logprob:.4f}" in line and repr(at[token_id].decoded_token) in line


def test_prompts_come_from_an_option_a_file_or_a_pipe(tiny_checkpoint, tmp_path, capsys, stdin):
    def answer(*arguments):
        assert generate(tiny_checkpoint("qwen3"), *arguments, "--max-tokens", "5", "--temperature", "0", "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        return shown["usage"]["prompt_tokens"], shown["token_ids"]

    wanted = answer("--prompt", "naïve")
    file = tmp_path / "prompt.txt"
    file.write_text("naïve\n", encoding="utf-8")
    assert answer("--prompt-file", str(file)) == wanted
    stdin("naïve".encode())
    assert answer("--prompt-file", "-") == wanted
    stdin("naïve\r\n".encode())
    assert answer() == wanted


@pytest.mark.parametrize("arguments, sentence", [
    ([], "there is no prompt; give --prompt TEXT or --prompt-file FILE, or pipe one in"),
    (["Tell me a story"], "there is no prompt; did you mean --prompt 'Tell me a story'?"),
    (["--prompt", ""], "the prompt is empty; at least one character is needed"),
    (["--prompt", "x", "--temperature", "-1"], "temperature should be in [0, 2], found -1.0"),
    (["--prompt", "x", "--temperature", "nan"], "temperature should be a finite number, found nan"),
    (["--prompt", "x", "--top-p", "0"], "top_p should be in (0, 1], found 0.0"),
    (["--prompt", "x", "--max-tokens", "0"], "max_tokens should be in [1, 2147483647], found 0"),
    (["--prompt", "x", "--logprobs", "-1"], "logprobs should be in [0, 2147483647], found -1"),
    (["--prompt", "x", "--stop", ""], "stop should hold non-empty strings, found ''"),
])
def test_what_cannot_be_done_is_refused_before_a_model_is_looked_for(arguments, sentence, terminal, monkeypatch, capsys):
    monkeypatch.setattr("vtlite.checkpoint.resolve.resolve", lambda *arguments: pytest.fail("looked for a model"))
    assert main(["generate", *arguments]) == 2
    assert capsys.readouterr().err == f"vtlite: {sentence}\n"


def test_a_prompt_that_is_not_text_names_the_byte(tiny_checkpoint, tmp_path, capsys):
    file = tmp_path / "prompt.bin"
    file.write_bytes(b"ab\xff")
    assert generate(tiny_checkpoint("qwen3"), "--prompt-file", str(file)) == 2
    assert "prompt.bin is not UTF-8 text: byte 0xff at offset 2" in capsys.readouterr().err
    assert generate(tiny_checkpoint("qwen3"), "--prompt-file", str(tmp_path / "none")) == 2
    assert "cannot be read (No such file or directory)" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_said_and_is_exit_code_130(tiny_checkpoint, monkeypatch, capsys):
    step, steps = SyncLoop.step, []

    def interrupted_at_the_third(loop):
        steps.append(loop)
        if len(steps) == 3:
            signal.raise_signal(signal.SIGINT)
        return step(loop)

    monkeypatch.setattr(SyncLoop, "step", interrupted_at_the_third)
    assert generate(tiny_checkpoint("qwen3"), "--prompt", "Once", "--seed", "7") == 130
    captured = capsys.readouterr()
    assert len(steps) == 3
    assert captured.out.strip()
    assert "3 tokens" in captured.err and "interrupted" in captured.err


def test_a_reader_that_has_left_ends_it_quietly(tiny_checkpoint):
    command = [sys.executable, "-m", "vtlite", "generate", tiny_checkpoint("qwen3"), *CPU, "--prompt", "Once", "--seed", "7"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
