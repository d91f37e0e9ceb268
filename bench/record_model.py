"""Record a whole model on this GPU, so that its bits can be reproduced anywhere without one.

    python bench/record_model.py --out DIR           -> DIR/model_<chip>.npz and DIR/model_hybrid_<chip>.npz

A prompt of 70 tokens and 9 greedy tokens, so 8 decode steps, of tiny-dense and tiny-hybrid. Of each step s:
    tap_s_NAME     what was tapped at NAME, bfloat16 as uint16
    ops_s          "NAME crc32" of the result of every operation and of every tap in order, then of every cache after the step
and token_ids [79] i64; ids [9, 3] i64 and logprobs [9, 3] f32 of the likeliest tokens of each of the last 9, which is the first.
Keep those of an H200 as tests/golden/model_h200.npz and model_hybrid_h200.npz.
"""

import argparse
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np

from vtlite import LLM, SamplingParams
from vtlite.tap import collect

TEXT = ("Once upon a time there was a small boat that did not like the rain. One day it met a duck on the lake, and the duck asked: "
        "\"Why do you hide under the tree?\" The boat said, \"If it rains, I will fill up and sink.\" The duck laughed and showed it a "
        "cup. \"Then we will scoop the water out together,\" she said, and from that day on")
PROMPT_TOKENS, NEW_TOKENS, TOP = 70, 9, 3
MODELS = {"tiny-dense": "model", "tiny-hybrid": "model_hybrid"}


class Recorder:
    """Stands in for a model's `ops`: the same functions, each result noted in `seen`, a list for each step."""

    def __init__(self, ops):
        self.ops, self.seen = ops, [[]]

    def __getattr__(self, name: str):
        op = getattr(self.ops, name)

        def noted(*args, **kwargs):
            result = op(*args, **kwargs)
            for array in result if isinstance(result, tuple) else (result,):
                if array is not None:
                    self.note(name, array)
            return result

        return noted

    def note(self, name: str, array) -> None:
        self.seen[-1].append(f"{name} {zlib.crc32(on_host(array).tobytes()):08x}")


def on_host(array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.numpy()


def record(llm: LLM, prompt: list[int], new_tokens: int = NEW_TOKENS) -> dict[str, np.ndarray]:
    """The arrays of a recording."""
    runner, recorded, recorder = llm.engine.loop.runner, {}, Recorder(llm.engine.model.ops)
    llm.engine.model.ops = recorder

    def note(name: str, array) -> None:
        recorder.note(name, array)
        array = on_host(array)
        recorded[f"tap_{len(recorder.seen) - 1}_{name}"] = array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array.copy()

    params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True, logprobs=TOP)
    token_ids, logprobs = list(prompt), []
    with collect(note):
        for delta in llm.stream(prompt, params):
            token_ids += delta.token_ids
            logprobs += delta.logprobs
            for layer, kv in enumerate(runner.kv_cache):
                recorder.note(f"kv_cache[{layer}]", kv)
            for layer, states in enumerate(runner.states):
                for kind, state in zip(("conv_state", "recurrent_state"), states):
                    recorder.note(f"{kind}[{layer}]", state[1])                     # the first slot handed out
            recorder.seen.append([])
    llm.engine.model.ops = recorder.ops
    recorded |= {f"ops_{step}": np.array(ops) for step, ops in enumerate(recorder.seen[:-1])}
    return recorded | {"token_ids": np.array(token_ids), "ids": np.array([list(at) for at in logprobs]),
                       "logprobs": np.array([[found.logprob for found in at.values()] for at in logprobs], np.float32)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, label in MODELS.items():
        llm = LLM(name, device="cuda", max_model_len=256, num_blocks=33, enable_prefix_caching=False)
        recorded = record(llm, llm.tokenizer.encode(TEXT)[:PROMPT_TOKENS])
        path = folder / f"{label}_{llm.engine.device.chip}.npz"
        np.savez_compressed(path, **recorded)
        print(f"{path}: {len(recorded)} arrays of {llm.engine.device.name}, {path.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
