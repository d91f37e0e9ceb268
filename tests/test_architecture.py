"""The arrows between the rooms of the house run one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "vtlite"

LEAVES = {"errors", "tap", "config", "opspec", "ieee", "elementary", "strict_json", "cache_folder"}
# room -> rooms it may import from, besides itself and the leaves
ALLOWED = {
    "errors": set(), "tap": set(), "ieee": set(), "elementary": set(), "strict_json": set(), "config": set(), "opspec": set(),
    "cache_folder": set(),
    "reference": set(),
    "cpu": {"reference"},
    "cuda": {"reference"},
    "checkpoint": set(),
    "models": set(),
    "engine": {"models", "checkpoint", "reference", "cpu", "cuda"},
    "serve": {"engine", "checkpoint", "vtlite"},
    "commands": {"serve", "engine", "checkpoint", "cuda", "vtlite"},
    "cli": {"commands", "vtlite"},
}
NOT_EVEN_LEAVES = {"errors", "tap", "cache_folder"}          # these import nothing of the project


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module] if node.module != "vtlite" else [f"vtlite.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "vtlite":
                known = len(parts) > 1 and ((PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").is_file())
                rooms.add(parts[1] if known else "vtlite")
    return rooms


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_imports_follow_the_arrows(room):
    files = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").is_file() else sorted((PACKAGE / room).rglob("*.py"))
    allowed = ALLOWED[room] | {room} | (set() if room in NOT_EVEN_LEAVES else LEAVES)
    for path in files:
        assert imported_rooms(path) <= allowed, f"{path.relative_to(PACKAGE.parent)} imports against the arrows"


@pytest.mark.parametrize("heavy", ["numba", "torch", "starlette", "tokenizers"])
def test_importing_vtlite_imports_nothing_heavy(heavy):
    code = f"import vtlite, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0
