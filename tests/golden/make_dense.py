"""Record what Hugging Face transformers answers, in float32 on a CPU, for tiny checkpoints and SmolLM2.

Writes NAME_tiny.npz for each family of tests/tiny_families.py, and smollm2.npz, beside this file. Needs torch, transformers,
numpy, ml_dtypes, safetensors and tokenizers, and none of vtlite:

    PYTHONPATH=. python tests/golden/make_dense.py [DIRECTORY_OF_THE_CONVERTED_SMOLLM2]

Per prompt, greedy decoding without a stop: `tokens`, `logprobs` (raw log-softmax at each token) and `margins` (how far
the best logit leads the second; a small one explains a difference). Per tiny checkpoint also the sha256 of its weights
and, for the longest prompt, the last position of many modules' outputs under their module names, and the error that
transformers makes in bfloat16.
"""

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from tests.tiny_checkpoints import Family
from tests.tiny_families import FAMILIES

HERE = Path(__file__).parent
TINY_TOKENS, SMOLLM2_TOKENS = 24, 64
TAPPED = re.compile(r"model\.(embed_tokens|norm|layers\.\d+(\.input_layernorm|\.post_attention_layernorm)?)|lm_head")


def load(directory: Path, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="eager").eval()


def greedy(model, prompt: list[int], count: int, cached: bool) -> dict[str, np.ndarray]:
    """`count` greedy tokens after `prompt`; without a cache every step recomputes the whole sequence."""
    cache = DynamicCache(config=model.config) if cached else None
    ids, tokens, logprobs, margins = list(prompt), [], [], []
    for _ in range(count):
        new = ids if not cached else ids[cache.get_seq_length():]
        logits = model(torch.tensor([new]), cache=cache, use_cache=cached, logits_to_keep=1).logits[0, -1]
        best, second = logits.double().topk(2).values.tolist()
        tokens.append(int(logits.argmax()))
        logprobs.append(float(logits.double().log_softmax(-1)[tokens[-1]]))
        margins.append(best - second)
        ids.append(tokens[-1])
    return {"tokens": np.array(tokens, np.uint16), "logprobs": np.array(logprobs, np.float32),
            "margins": np.array(margins, np.float32)}


def taps(model, prompt: list[int]) -> dict[str, np.ndarray]:
    """Module name -> its output at the last position of `prompt`, float32."""
    seen, hooks = {}, []
    for name, module in model.named_modules():
        if TAPPED.fullmatch(name):
            def keep(_module, _inputs, output, name=name):
                seen[name] = (output[0] if isinstance(output, tuple) else output)[0, -1].float().numpy().copy()
            hooks.append(module.register_forward_hook(keep))
    model(torch.tensor([prompt]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return seen


def bfloat16_error(model, model_bfloat16, prompt: list[int]) -> np.ndarray:
    """How far transformers' own bfloat16 logits of all positions are from its float32 ones: rms over rms."""
    exact, rounded = (m(torch.tensor([prompt]), use_cache=False).logits.double() for m in (model, model_bfloat16))
    return ((rounded - exact).square().mean().sqrt() / exact.square().mean().sqrt()).numpy()


def stacked(runs: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {key: np.stack([run[key] for run in runs]) for key in runs[0]}


def tiny(family: Family) -> dict[str, np.ndarray]:
    arrays = {}
    for name in family.configs:
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = family.build(name, Path(directory))
            digest = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
            model, model_bfloat16 = load(checkpoint), load(checkpoint, torch.bfloat16)
        prompts = family.prompts(name)
        found = stacked([greedy(model, prompt, TINY_TOKENS, cached=False) for prompt in prompts])
        found |= {f"taps/{module}": value for module, value in taps(model, prompts[-1]).items()}
        arrays |= {f"{name}/{key}": value for key, value in found.items()}
        arrays[f"{name}/sha256"] = np.array(digest)
        arrays[f"{name}/bfloat16_error"] = bfloat16_error(model, model_bfloat16, prompts[-1])
        print(f"{name}: smallest margin {found['margins'].min():.5f}, "
              f"bfloat16 error {arrays[f'{name}/bfloat16_error'] * 256:.1f} x 2^-8")
    return arrays


def smollm2(directory: Path) -> dict[str, np.ndarray]:
    model, tokenizer = load(directory), AutoTokenizer.from_pretrained(directory)
    arrays, runs = {}, []
    for i, prompt in enumerate(json.loads((HERE / "smollm2_prompts.json").read_text(encoding="utf-8"))):
        if isinstance(prompt, str):
            ids = tokenizer(prompt).input_ids
        else:
            ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        runs.append(greedy(model, ids, SMOLLM2_TOKENS, cached=True))
        arrays[f"prompt_{i:02d}"] = np.array(ids, np.uint16)
        print(f"{i:2d} {len(ids):4d} tokens, smallest margin {runs[-1]['margins'].min():.5f}: "
              f"{tokenizer.decode(runs[-1]['tokens'])[:70]!r}", flush=True)
    return arrays | stacked(runs)


def save(name: str, arrays: dict[str, np.ndarray]) -> None:
    versions = {"torch": np.array(torch.__version__), "transformers": np.array(transformers.__version__)}
    np.savez_compressed(HERE / name, **arrays, **versions)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)          # the order of sums, and so the last bits, should not follow the machine
    for family in FAMILIES:
        save(f"{family.name}_tiny.npz", tiny(family))
    if len(sys.argv) > 1:
        save("smollm2.npz", smollm2(Path(sys.argv[1])))
