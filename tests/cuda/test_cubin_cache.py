"""The cubin cache: found by what decides the code, never half a file, the compiler only on a miss."""

import json
import multiprocessing
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FunctionType

import pytest

from tests.cuda import small_kernels as small
from vtlite.cuda import binding, compiler, cubin_cache
from vtlite.cuda.compiler import Compiled, CompileError, Figures
from vtlite.cuda.cubin_cache import Entry
from vtlite.cuda.lang.primitive import PRIMITIVES

CHIP = "sm_90a"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def compiled(monkeypatch):
    """Stands for the compiler: the list of what it was asked for."""
    asked = []

    def compile_kernel(specialized, chip):
        asked.append((specialized.name, chip))
        return Compiled(b"cubin of " + specialized.name.encode(), ".entry e", "e", Figures(8, 0, 0, 0, 0))

    monkeypatch.setattr(compiler, "compile_kernel", compile_kernel)
    return asked


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The explicit folder, the package's and the user's, empty."""
    monkeypatch.setenv("VTLITE_CUBINS", str(tmp_path / "explicit"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(cubin_cache, "PREBUILT", cubin_cache.PREBUILT.parent / "no cubins")
    return [tmp_path / "explicit", cubin_cache.PREBUILT, cubin_cache.user_cache()]


def kernel(scale=2):
    return small.scale_kernel.specialize(SCALE=scale)


def files(folder):
    return sorted((folder / CHIP).iterdir())


def test_a_kernel_is_compiled_once_and_then_found(compiled, folders):
    first = cubin_cache.load(kernel(), CHIP)
    second = cubin_cache.load(kernel(), CHIP)
    assert compiled == [("scale_kernel[SCALE=2]", CHIP)]
    assert (second.cubin, second.ptx, second.name, second.figures["registers"]) == (first.cubin, ".entry e", "e", 8)
    assert [path.suffix for path in files(folders[2])] == [".cubin", ".json", ".ptx"]


def test_constants_and_chips_have_entries_of_their_own(compiled, folders):
    for scale, chip in ((2, CHIP), (3, CHIP), (2, "sm_80")):
        cubin_cache.load(kernel(scale), chip)
    assert len(compiled) == 3


def test_the_explicit_folder_comes_first(compiled, folders):
    for folder, content in ((folders[2], b"user"), (folders[0], b"explicit")):
        cubin_cache.write(folder, kernel(), CHIP, Entry(content, "", {"entry": "e"}, None))
    assert cubin_cache.load(kernel(), CHIP).cubin == b"explicit"
    assert not compiled


@pytest.mark.parametrize("damage", [
    lambda path: path.with_suffix(".cubin").write_bytes(b"cubin"),
    lambda path: path.with_suffix(".cubin").unlink(),
    lambda path: path.with_suffix(".ptx").write_text("other"),
    lambda path: path.with_suffix(".json").write_text('{"entry": "e", "sha'),
    lambda path: path.with_suffix(".json").write_text("[]"),
    lambda path: path.with_suffix(".json").unlink(),
], ids=["truncated cubin", "no cubin", "other ptx", "truncated json", "json of something else", "no json"])
def test_a_damaged_entry_is_compiled_again(damage, compiled, folders):
    good = cubin_cache.load(kernel(), CHIP)
    damage(good.path)
    assert cubin_cache.load(kernel(), CHIP).cubin == good.cubin
    assert len(compiled) == 2
    assert cubin_cache.read(folders[2], kernel(), CHIP).cubin == good.cubin


def write_until(enough: Path, folder: Path, content: bytes) -> None:
    while not enough.exists():
        cubin_cache.write(folder, kernel(), CHIP, Entry(content, "", {"entry": "e"}, None))


def test_processes_that_write_at_once_leave_whole_files(tmp_path):
    enough, folder, processes = tmp_path / "enough", tmp_path / "cubins", multiprocessing.get_context("spawn")
    writers = [processes.Process(target=write_until, args=(enough, folder, bytes([letter]) * 200_000)) for letter in b"ab"]
    for writer in writers:
        writer.start()
    seen = set()
    while len(seen) < 2 and all(writer.is_alive() for writer in writers):
        entry = cubin_cache.read(folder, kernel(), CHIP)
        if entry is not None:
            assert len(set(entry.cubin)) == 1 and len(entry.cubin) == 200_000
            seen.add(entry.cubin[:1])
    enough.touch()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen == {b"a", b"b"}
    assert len(files(folder)) == 3                                    # no temporary files are left


def test_a_folder_that_cannot_be_written_costs_only_time(compiled, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cubin_cache.load(kernel(), CHIP).path is None


def test_a_miss_without_a_compiler_says_what_to_install(folders, monkeypatch):
    def no_package(name):
        raise compiler.PackageNotFoundError(name)

    monkeypatch.setattr(compiler, "version", no_package)
    compiler._load_compiler.cache_clear()
    with pytest.raises(CompileError, match=r'pip install "vtlite\[cuda\]"'):
        cubin_cache.load(kernel(), CHIP)


def test_the_key_follows_everything_that_decides_the_code(monkeypatch):
    def key(kernel, **constants):
        return replace(kernel, _made={}).specialize(**constants).source_hash            # afresh: hashes are computed once

    scale, unrolled = key(small.scale_kernel, SCALE=2), key(small.unrolled_kernel)
    assert key(small.scale_kernel, SCALE=2) == scale
    assert key(small.scale_kernel, SCALE=3) != scale
    assert key(replace(small.scale_kernel, threads=64), SCALE=2) != scale
    assert key(replace(small.scale_kernel, parameters=small.fused_kernel.parameters), SCALE=2) != scale
    assert key(small.fused_kernel) != key(small.product_and_sum_kernel)

    other_globals = small.scaled.__globals__ | {"f32": small.u32}
    monkeypatch.setattr(small, "scaled", FunctionType(small.scaled.__code__, other_globals))
    assert key(small.scale_kernel, SCALE=2) != scale                                    # a device function's global
    monkeypatch.setitem(PRIMITIVES[small.shfl_xor].ptx, "sm_80", "shfl.sync.bfly.b32 $0, $value, $lane_mask, 31, -1;")
    assert key(small.unrolled_kernel) != unrolled                                       # a primitive's PTX


def test_the_key_names_no_place_on_this_machine():
    for name, text in binding.reached(small.scale_kernel.function, ["SCALE"]):
        assert str(ROOT) not in text and " at 0x" not in text, name


def test_what_is_found_loads_without_the_compiler(tmp_path):
    cubin_cache.write(tmp_path, kernel(), CHIP, Entry(b"kept", "", {"entry": "e"}, None))
    code = f"""
import sys
from tests.cuda import small_kernels as small
from vtlite.cuda import cubin_cache
entry = cubin_cache.load(small.scale_kernel.specialize(SCALE=2), {CHIP!r})
assert entry.cubin == b"kept", entry
assert not any(name.startswith(("numba", "cuda.bindings", "greenlet")) for name in sys.modules)
"""
    environment = {"VTLITE_CUBINS": str(tmp_path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment)


def test_figures_are_kept_as_json_beside_the_cubin(compiled, folders):
    path = cubin_cache.load(kernel(), CHIP).path.with_suffix(".json")
    figures = json.loads(path.read_text())
    assert {name: figures[name] for name in ("kernel", "chip", "registers", "spill_store_bytes")} == \
        {"kernel": "scale_kernel[SCALE=2]", "chip": CHIP, "registers": 8, "spill_store_bytes": 0}
