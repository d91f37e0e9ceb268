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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    tok = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    batch = tok.apply_chat_template([[dict(role="user", content=request)] for request in HELD_OUT], padding=True,
                                    add_generation_prompt=True, return_tensors="pt", return_dict=True)
    results = [dict(request=request) for request in HELD_OUT]
    for way, options in WAYS.items():
        torch.manual_seed(SEED)
        answers = model.generate(**batch, max_new_tokens=LONGEST, **options)[:, batch["input_ids"].shape[1]:]
        for result, ids in zip(results, answers):
            result[way] = tok.decode(ids, skip_special_tokens=True)
            result[way + "_ended"] = bool(((ids == 0) | (ids == 2)).any())
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
