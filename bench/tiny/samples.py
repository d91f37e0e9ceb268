"""Answer the unseen requests of prompts.HELD_OUT with a checkpoint, greedily and at temperature 0.7.

    python samples.py --model tiny-hybrid/ --out samples/tiny-hybrid.json

In float32 on the CPU, one request at a time, through the checkpoint's chat template, until an end token or 320 new
tokens. Sampling: temperature 0.7, top-p 0.9, seed 7 before each request. Nothing is selected or edited.
"""
import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from prompts import HELD_OUT

SEED, LONGEST = 7, 320
WAYS = {"greedy": dict(do_sample=False, temperature=None, top_p=None, top_k=None),
        "sampled": dict(do_sample=True, temperature=0.7, top_p=0.9, top_k=0)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--requests", type=int, default=len(HELD_OUT))
    args = parser.parse_args()
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    results = []
    for request in HELD_OUT[:args.requests]:
        prompt = tok.apply_chat_template([dict(role="user", content=request)], add_generation_prompt=True,
                                         return_tensors="pt", return_dict=True)
        result = dict(request=request)
        for way, options in WAYS.items():
            torch.manual_seed(SEED)
            ids = model.generate(**prompt, max_new_tokens=LONGEST, **options)[0, prompt["input_ids"].shape[1]:]
            result[way] = tok.decode(ids, skip_special_tokens=True)
            result[way + "_ended"] = bool(ids[-1] in (0, 2))
        results.append(result)
        print(json.dumps(result), flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
