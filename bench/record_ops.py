"""Record what each op gives for fixed inputs on this GPU, so that the emulator can be held to the same bits anywhere.

    python bench/record_ops.py --out DIR           -> DIR/ops_<chip>.npz

The small cases of every OpSpec, as `Trial.recording` gives them. Keep the file of an H200 as tests/golden/ops_h200.npz.
"""

import argparse
from pathlib import Path

import numpy as np

from vtlite.cuda import all_specs, device
from vtlite.opspec import Trial


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    folder = parser.parse_args().out
    gpu, recorded = device.current(), {}
    for spec in all_specs().values():
        for case in spec.cases:
            recorded |= Trial.of(gpu, spec, case).recording()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"ops_{gpu.chip}.npz"
    np.savez_compressed(path, **recorded)
    print(f"{path}: {len(recorded)} arrays of {gpu.name}, {path.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
