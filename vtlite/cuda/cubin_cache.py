"""Where cubins are kept and found: explicit folder, the package's own set, the user's cache; the compiler comes last.

A folder holds, per chip, three files for a specialised kernel:

    sm_90a/rms_norm_kernel-<key>.cubin  .ptx  .json         the last with figures and the SHA-256 of the first

The key is a hash of everything that decides the code (Specialized.source_hash), the chip and the compiler (its tested version
and our own passes), and is the same on every machine. Files appear whole, under a temporary name first, and the JSON
last; a cubin that does not fit its checksum counts as absent and is compiled again.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from vtlite.cache_folder import cache_folder
from vtlite.cuda.kernel import Specialized

PREBUILT = Path(__file__).parent / "cubins"
COMPILER_SOURCES = ("compiler.py", "lowering.py", "number_rules.py", "binding.py")


@dataclass(frozen=True)
class Entry:
    """A kernel ready to load."""

    cubin: bytes
    ptx: str
    figures: dict                       # entry (the kernel's name in the cubin), registers, ..., as compiler.Compiled has them
    path: Path | None                   # None: it could not be kept

    @property
    def name(self) -> str:
        return self.figures["entry"]


def load(specialized: Specialized, chip: str) -> Entry:
    """The cubin for a chip, found or compiled. CompileError if it has to be compiled and cannot be."""
    for folder in folders():
        if (entry := read(folder, specialized, chip)) is not None:
            return entry
    return build(specialized, chip, user_cache())


def folders() -> Iterator[Path]:
    """Where to look, in order."""
    if explicit := os.environ.get("VTLITE_CUBINS"):
        yield Path(explicit)
    yield PREBUILT
    yield user_cache()


def user_cache() -> Path:
    return cache_folder() / "cubins"


def build(specialized: Specialized, chip: str, folder: Path) -> Entry:
    """Compile and keep in a folder. A folder that cannot be written does no harm: then the next process compiles again."""
    from vtlite.cuda.compiler import compile_kernel     # only on a miss
    compiled = compile_kernel(specialized, chip)
    entry = Entry(compiled.cubin, compiled.ptx, {"kernel": specialized.name, "chip": chip, **compiled.describe()}, None)
    try:
        return write(folder, specialized, chip, entry)
    except OSError:
        return entry


def read(folder: Path, specialized: Specialized, chip: str) -> Entry | None:
    """What a folder holds of a kernel; None if it is not there, or not whole."""
    stem = folder / chip / _stem(specialized, chip)
    try:
        figures = json.loads(stem.with_suffix(".json").read_text())
        cubin, ptx = stem.with_suffix(".cubin").read_bytes(), stem.with_suffix(".ptx").read_text()
    except (OSError, ValueError):
        return None
    if not isinstance(figures, dict) or figures.pop("sha256", None) != _checksum(cubin, ptx):
        return None
    return Entry(cubin, ptx, figures, stem.with_suffix(".cubin"))


def write(folder: Path, specialized: Specialized, chip: str, entry: Entry) -> Entry:
    """Keep an entry. Processes that write the same one at once write the same bytes, and readers see whole files."""
    stem = folder / chip / _stem(specialized, chip)
    stem.parent.mkdir(parents=True, exist_ok=True)
    checksum = {"sha256": _checksum(entry.cubin, entry.ptx)}
    _write_whole(stem.with_suffix(".cubin"), entry.cubin)
    _write_whole(stem.with_suffix(".ptx"), entry.ptx.encode())
    _write_whole(stem.with_suffix(".json"), json.dumps(entry.figures | checksum, indent=1).encode())
    return Entry(entry.cubin, entry.ptx, entry.figures, stem.with_suffix(".cubin"))


def _write_whole(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _stem(specialized: Specialized, chip: str) -> str:
    """Name without suffix. The key needs 128 bits at most: nobody forges it."""
    text = f"{specialized.source_hash} {chip} {_compiler_hash()}"
    return f"{specialized.kernel.name}-{sha256(text.encode()).hexdigest()[:32]}"


@cache
def _compiler_hash() -> str:
    from vtlite.cuda.compiler import TESTED_VERSION
    sources = "".join((PREBUILT.parent / name).read_text() for name in COMPILER_SOURCES)
    return sha256(f"{TESTED_VERSION}{sources}".encode()).hexdigest()


def _checksum(cubin: bytes, ptx: str) -> str:
    return sha256(cubin + ptx.encode()).hexdigest()
