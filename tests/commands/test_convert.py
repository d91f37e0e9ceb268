"""`vtlite convert` and what it says."""

from tests import tiny_gguf
from vtlite.cli import main


def test_a_gguf_becomes_a_directory_that_generate_takes(tmp_path, capsys):
    source, target = tmp_path / "tiny.gguf", tmp_path / "tiny"
    tiny_gguf.write(source)
    assert main(["convert", str(source), str(target), "--dtype", "float32"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{target}: 0.") and f"vtlite generate {target} --prompt" in said

    assert main(["generate", str(target), "--prompt", "the", "--max-tokens", "3", "--raw", "--device", "reference"]) == 0
    assert "3 tokens" in capsys.readouterr().err


def test_what_cannot_be_converted_is_one_sentence(tmp_path, capsys):
    source = tmp_path / "lies.gguf"
    source.write_bytes(b"not a GGUF")
    assert main(["convert", str(source), str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"vtlite: {source}") and captured.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
