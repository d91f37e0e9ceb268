"""What transformers computes for hybrids, at length: 20 prompts of 1 to 500 tokens, 128 greedy tokens after each.

    PYTHONPATH=. python tests/golden/make_hybrids.py          (needs torch and transformers; writes hybrids_128.npz beside this file)

float32 on a CPU, as make_bundled.py. Of the bundled tiny-hybrid, and of the tiny random checkpoints of tests/tiny_hybrids.py:
    NAME/lengths   [20]       uint16   of the prompts
    NAME/prompts   [sum]      uint16   their token ids, one after another
    NAME/tokens    [20, 128]  uint16   greedy, going on past end tokens; the same with a cache and without
    NAME/logprobs  [20, 128]  float32  log-softmax of each
    NAME/margins   [20, 128]  float16  its logit minus the second's
    NAME/sha256               of the weights
"""

import tempfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoTokenizer

from tests.golden.make_bundled import BUNDLED, HERE, STORY, load, record
from tests.tiny_checkpoints import VOCAB_SIZE
from tests.tiny_hybrids import HYBRIDS

LENGTHS = (1, 63, 64, 65, 127, 500, 2, 3, 5, 9, 16, 31, 62, 66, 100, 126, 128, 129, 191, 257)
NEW = 128


def story_prompts() -> list[list[int]]:
    """Pieces of a text that goes round, so that the bundled model is in its element."""
    ids = AutoTokenizer.from_pretrained(BUNDLED / "tiny-hybrid").encode(4 * STORY, add_special_tokens=False)
    return [ids[11 * i : 11 * i + length] for i, length in enumerate(LENGTHS)]


def random_prompts(seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB_SIZE, length).tolist() for length in LENGTHS]


def golden(directory: Path, prompts: list[list[int]]) -> dict[str, np.ndarray]:
    model = load(directory)
    runs = [record(model, prompt, NEW) for prompt in prompts]
    arrays = {key: np.stack([run[key] for run in runs]).astype(dtype)
              for key, dtype in (("tokens", np.uint16), ("logprobs", np.float32), ("margins", np.float16))}
    return arrays | {"lengths": np.array(LENGTHS, np.uint16), "prompts": np.concatenate(prompts).astype(np.uint16),
                     "sha256": np.array(sha256((directory / "model.safetensors").read_bytes()).hexdigest())}


def main() -> None:
    found = {"tiny-hybrid": golden(BUNDLED / "tiny-hybrid", story_prompts())}
    for seed, name in enumerate(HYBRIDS.configs):
        with tempfile.TemporaryDirectory() as directory:
            found[name] = golden(HYBRIDS.build(name, Path(directory)), random_prompts(seed))
    for name, arrays in found.items():
        print(f"{name}: smallest margin {arrays['margins'].min():.5f}", flush=True)
    versions = {"torch": np.array(torch.__version__), "transformers": np.array(transformers.__version__)}
    np.savez_compressed(HERE / "hybrids_128.npz", **versions,
                        **{f"{name}/{key}": array for name, arrays in found.items() for key, array in arrays.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)          # the order of sums, and so the last bits, should not follow the machine
    main()
