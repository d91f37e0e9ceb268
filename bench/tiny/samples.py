"""Answer the unseen requests of prompts.HELD_OUT with a checkpoint, greedily and sampled.

    python samples.py --model tiny-hybrid/ --out samples/tiny-hybrid.json

In float32 on the CPU, the twenty in one left-padded batch, through the checkpoint's chat template, until an end token
or 320 new tokens. Sampling as generation_config.json says, with seed 7; `free` is the same without a repetition
penalty; greedy is the bare argmax. Nothing is selected or edited.
"""
import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from prompts import HELD_OUT

SEED, LONGEST = 7, 320
WAYS = {"greedy": dict(do_sample=False, temperature=None, top_p=None, repetition_penalty=1.0),
        "sampled": dict(do_sample=True, top_k=0),
        "free": dict(do_sample=True, top_k=0, repetition_penalty=1.0)}


def load(path: str):
    """The model, in float32, and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(path, padding_side="left")


@torch.inference_mode()
def answers(model, tok, requests: list[str], longest: int, **options) -> list[tuple[str, bool]]:
    """To each request the answer, and whether it ended by itself."""
    batch = tok.apply_chat_template([[dict(role="user", content=request)] for request in requests], padding=True,
                                    add_generation_prompt=True, return_tensors="pt", return_dict=True).to(model.device)
    torch.manual_seed(SEED)
    ids = model.generate(**batch, max_new_tokens=longest, **options)[:, batch["input_ids"].shape[1]:]
    return list(zip(tok.batch_decode(ids, skip_special_tokens=True), ((ids == 0) | (ids == 2)).any(1).tolist()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    model, tok = load(args.model)
    results = [dict(request=request) for request in HELD_OUT]
    for way, options in WAYS.items():
        for result, (text, ended) in zip(results, answers(model, tok, HELD_OUT, LONGEST, **options)):
            result |= {way: text, way + "_ended": ended}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
