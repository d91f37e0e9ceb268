"""Train one of the checkpoints of shapes.py with transformers' own class for its architecture.

    python train_tiny.py --shape tiny-hybrid --rows rows/ --tokenizer tokenizer/ --out tiny-hybrid/ --steps 2000 --minutes 7

The weights are bf16 and carry the forward pass; the optimiser of muon.py moves float32 masters that they are rounded
from, so the loss reported is that of the file written. Learning rate: 100 steps up, constant, and a straight line to
zero over the last 40 %; in the last 20 % only the best rows are read. `--minutes` bounds the run:
the schedule follows whichever of steps and time is further along, and time counts from step 20 on, so that compiling does
not use up the schedule.
Out: the checkpoint directory and log.json.
"""
import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM

import gated_delta
from muon import Masters
from pack_rows import PAD
from shapes import SHAPES

WARMUP, DECAY, BEST = 100, 0.4, 0.2                            # steps up; shares of the run on the way down, on the best rows
COMPILED = 20                                                  # steps after which the clock starts
BALANCE = 0.01                                                 # weight of the experts' load-balancing loss


def build(shape: str, out: Path, start: Path | None) -> torch.nn.Module:
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(SHAPES[shape], indent=2) + "\n")
    options = dict(dtype=torch.bfloat16, attn_implementation="sdpa")
    if start:
        return AutoModelForCausalLM.from_pretrained(start, **options)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(out), **options)
    for name, p in model.named_parameters():
        if name.endswith("dt_bias"):                           # steps from 0.001 to 0.1, as in Mamba: slow decays at first
            dt = torch.empty(p.shape).uniform_(math.log(1e-3), math.log(1e-1)).exp()
            p.data.copy_(dt + torch.log(-torch.expm1(-dt)))
    return model


class RouterBalance:
    """Collects router logits; `loss()` is E sum_e f_e P_e, 1 when the experts share the tokens evenly."""

    def __init__(self, model):
        self.seen = []
        for name, module in model.named_modules():
            if type(module).__name__ == "DeepseekV2TopkRouter":
                module.register_forward_hook(self.see)

    def see(self, module, args, out):
        if torch.is_grad_enabled():
            self.seen.append((out[0], out[2]))                 # logits [T, E], chosen [T, k]

    def loss(self):
        terms = []
        for logits, chosen in self.seen:
            experts = logits.shape[-1]
            share = F.one_hot(chosen, experts).float().mean((0, 1))
            terms.append(experts * (share * logits.softmax(-1).mean(0)).sum())
        self.seen.clear()
        return torch.stack(terms).mean() if terms else 0.0


def next_token_loss(model, rows: torch.Tensor) -> torch.Tensor:
    """rows [B, T] int64 with PAD. Mean loss over the tokens that are there."""
    padding = rows == PAD
    logits = model(input_ids=rows.masked_fill(padding, 0), use_cache=False).logits
    targets = rows.masked_fill(padding, -100)[:, 1:].flatten()
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets, ignore_index=-100)


@torch.no_grad()
@torch.compiler.set_stance("force_eager")
def held_out_loss(model, rows: torch.Tensor, batch: int) -> float:
    total = tokens = 0
    for part in rows.split(batch):
        n = int((part[:, 1:] != PAD).sum())
        total += float(next_token_loss(model, part.long())) * n
        tokens += n
    return total / tokens


def rate(progress: float, step: int, peak: float) -> float:
    return peak * min(1.0, (step + 1) / WARMUP) * min(1.0, (1 - progress) / DECAY)


class Clock:
    """The share of a run that is over, by steps or by time, whichever is further along."""

    def __init__(self, steps: int, minutes: float):
        self.steps, self.begun, self.started = steps, time.time(), math.inf
        self.end = self.begun + minutes * 60

    def progress(self, step: int) -> float:
        now = time.time()
        if step == COMPILED:
            self.started = now
        by_time = (now - self.started) / (self.end - self.started) if step >= COMPILED and self.started < self.end else 0.0
        return max(step / self.steps, by_time, float(now >= self.end))


def save(model, out: Path, tokenizer: Path):
    config = (out / "config.json").read_text()
    model.save_pretrained(out)
    (out / "config.json").write_text(config)                   # as shapes.py spells it
    (out / "generation_config.json").write_text(json.dumps(
        dict(do_sample=True, temperature=0.7, top_p=0.9, repetition_penalty=1.1, eos_token_id=[2, 0], pad_token_id=0),
        indent=2) + "\n")
    for name in "tokenizer.json", "tokenizer_config.json":
        (out / name).write_bytes((tokenizer / name).read_bytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", required=True, choices=SHAPES)
    parser.add_argument("--rows", required=True, type=Path)
    parser.add_argument("--tokenizer", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--start", type=Path, help="directory of a checkpoint to go on from")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--batch", type=int, default=64, help="rows of 1024 tokens a step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    clock = Clock(args.steps, args.minutes)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    gated_delta.install()
    model = build(args.shape, args.out, args.start).to(device)
    if device == "cuda":
        for layer in model.model.layers:
            layer.compile()
    balance, masters = RouterBalance(model), Masters(model)
    train, best, held_out = (torch.from_numpy(np.load(args.rows / f"{n}.npy").astype(np.int32)).to(device)
                               for n in ("train", "best", "held_out"))
    order = torch.Generator().manual_seed(args.seed)
    parameters = sum(p.numel() for p in model.parameters())
    log = dict(shape=args.shape, parameters=parameters, tokens_a_step=args.batch * train.shape[1], lr=args.lr,
               seed=args.seed, rows=len(train), held_out_rows=len(held_out), curve=[], held_out_curve=[])
    print(f"{args.shape}: {parameters:,} parameters, {len(train)} rows", flush=True)

    step, rows, queue = 0, train, torch.empty(0, dtype=torch.int64)
    while True:
        progress = clock.progress(step)
        if progress >= 1:
            break
        if progress > 1 - BEST and rows is train:
            rows, queue = best, queue[:0]
            log["best_from"] = step
        if len(queue) < args.batch:
            queue = torch.cat([queue, torch.randperm(len(rows), generator=order)])
        picked, queue = queue[:args.batch], queue[args.batch:]
        loss = next_token_loss(model, rows[picked.to(device)].long())
        (loss + BALANCE * balance.loss()).backward()
        masters.step(rate(progress, step, args.lr))
        step += 1
        if step % 50 == 0 or step == 1:
            log["curve"].append((step, round(time.time() - clock.begun, 1), round(loss.item(), 4)))
            print(f"{args.shape} step {step} {time.time() - clock.begun:.0f} s loss {loss.item():.4f}", flush=True)
        if step % 400 == 0:
            log["held_out_curve"].append((step, round(held_out_loss(model, held_out, args.batch), 4)))
            print(f"{args.shape} step {step} held-out loss {log['held_out_curve'][-1][1]}", flush=True)

    first = log.setdefault("best_from", step)
    log.update(steps=step, passes=round(first * args.batch / len(train), 2),
               best_passes=round((step - first) * args.batch / len(best), 2), seconds=round(time.time() - clock.begun, 1))
    log["held_out_loss"] = held_out_loss(model, held_out, args.batch)
    print(f"{args.shape}: {step} steps, {log['passes']} passes, held-out loss {log['held_out_loss']:.4f}", flush=True)
    save(model, args.out, args.tokenizer)
    (args.out / "log.json").write_text(json.dumps(log) + "\n")


if __name__ == "__main__":
    main()
