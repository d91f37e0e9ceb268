"""Compiles the kernels of a bench whose constants no prebuilt cubin has, where there is a compiler and need be no GPU."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from vtlite.cuda.kernel import Specialized
from vtlite.cuda.prebuild import build_all


def main(description: str, kernels: Iterable[Specialized]) -> int:
    """The command line of such a bench: --chip, and --out, the folder of cubins. Exit code 1 if one fails or spills."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--chip", default="sm_90a")
    parser.add_argument("--out", type=Path, required=True, help="folder of cubins")
    args = parser.parse_args()
    problems = 0
    for rows in build_all(kernels, [args.chip], args.out):
        for row in rows:
            print(row, flush=True)
            problems += bool(row.problem or row.spill_bytes)
    return int(problems > 0)
