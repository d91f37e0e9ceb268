"""The front of the command line: what it imports, and how it speaks when something is wrong."""

import subprocess
import sys

import pytest

import vtlite
from vtlite import cli
from vtlite.cli import COMMANDS, main
from vtlite.errors import CheckpointError


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)])
def test_help_and_version_import_nothing_heavy(arguments):
    code = f"""
import sys
from vtlite.cli import main
try:
    main({arguments!r})
finally:
    heavy = {{"numpy", "rich", "numba", "tokenizers", "jinja2", "starlette"}} & set(sys.modules)
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "vtlite" in done.stdout


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "vtlite", "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == f"vtlite {vtlite.__version__}\n"


def test_its_process_ends_with_the_exit_code_and_all_that_was_written():
    done = subprocess.run([sys.executable, "-m", "vtlite", "xyzzy"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vtlite: there is no command 'xyzzy' (see vtlite --help)\n"
    done = subprocess.run([sys.executable, "-m", "vtlite"], capture_output=True, text=True)
    assert done.returncode == 0 and all(command in done.stdout for command in COMMANDS)


def test_no_command_shows_the_commands(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


@pytest.mark.parametrize("arguments, sentence", [
    (["genrate"], "there is no command 'genrate'; did you mean 'generate'? (see vtlite --help)"),
    (["xyzzy"], "there is no command 'xyzzy' (see vtlite --help)"),
    (["generate", "--max-token=5"],
     "unknown argument '--max-token'; did you mean '--max-tokens'? (see vtlite generate --help)"),
    (["generate", "--max-tokens"], "--max-tokens: expected one argument (see vtlite generate --help)"),
    (["generate", "--seed", "x"], "--seed: invalid int value: 'x' (see vtlite generate --help)"),
    (["--verison"], "unknown argument '--verison'; did you mean '--version'? (see vtlite --help)"),
    (["convert"], "the following arguments are required: FILE.gguf, OUT_DIR (see vtlite convert --help)"),
    (["serve", "--kv-cache-bytes", "2X"],
     "--kv-cache-bytes: expected a size such as 2G, 512M or 1073741824, found '2X' (see vtlite serve --help)"),
])
def test_a_command_line_that_cannot_be_understood_is_one_sentence(arguments, sentence, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err == f"vtlite: {sentence}\n"
    assert captured.out == ""


def test_an_error_shows_its_traceback_only_on_demand(monkeypatch, capsys):
    assert main(["generate", "no such model", "--prompt", "x"]) == 2
    assert capsys.readouterr().err.startswith("vtlite: 'no such model' is not a model.")
    monkeypatch.setenv("VTLITE_DEBUG", "1")
    with pytest.raises(CheckpointError):
        main(["generate", "no such model", "--prompt", "x"])


def test_ctrl_c_anywhere_is_exit_code_130(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt
    monkeypatch.setattr(cli, "_run", interrupted)
    assert main(["generate"]) == 130
    assert capsys.readouterr() == ("", "")
