"""Write a checkpoint's README.md from its training log, its samples and the logs of what it is compared with.

    python model_card.py --model tiny-hybrid/ --log logs/tiny-hybrid.json --baseline logs/dense-8m.json \\
        --samples samples/tiny-hybrid.json --corpus rows/corpus.json --conversations 150000
"""
import argparse
import json
import re
from collections import Counter
from pathlib import Path

ABOUT = {
    "tiny-hybrid": "Qwen3_5ForCausalLM: 8 layers, three gated delta nets to one gated full attention; 4 key and 8 value\n"
                   "heads of 64; 4 query and 2 key-value heads of 64, half of each rotated; tied embeddings.",
    "tiny-mla": "DeepseekV2ForCausalLM: 6 layers of multi-head latent attention (latent 128, rope part 32, YaRN factor 4);\n"
                "one dense layer, then 8 routed experts, 2 active, and 1 shared; untied embeddings.",
    "tiny-dense": "Qwen3ForCausalLM: 6 layers, 4 query and 2 key-value heads of 64, QK-norm; tied embeddings.",
}

LOOP = 3            # an output loops if a run of four words occurs in it more often

CARD = """---
license: apache-2.0
language: en
pipeline_tag: text-generation
---
# {name}

A small trained checkpoint that ships inside vtlite, so that a fresh machine has something to run and tests have real
margins.
{about}
{parameters:,} parameters, bf16. It writes little stories, answers simple questions and chats in turns.

What to expect: mostly grammatical sentences in little stories that ramble, as its teacher of 135 M parameters does. A name
that it is asked for it keeps; an animal or a thing that it has not met may turn into another, as the outputs below show. It
knows next to nothing about the world. {loops}

## Data
Text written by SmolLM2-135M-Instruct (Hugging Face, Apache-2.0, Q4_1 weights) on one H200: {conversations:,}
conversations from requests drawn from the lists in `bench/tiny/prompts.py`. Of these {conversations_kept:,} are kept: neither
cut off nor repetitive, and stories short, about the characters and the topic asked for. A few stories that go wrong late
are cut after a sentence that ends them. Each is packed {copies} times, with
other names for its characters each time, and often other animals and things: {train_documents:,} documents,
{train_tokens:.1f} M tokens to train on, and {held_out_documents:,} documents, {held_out_tokens:.2f} M tokens, held out. The held-out documents answer requests that occur
nowhere in the training part. Half of the single-turn stories are plain documents; everything else is in the chat
template. The corpus is not kept; `bench/tiny/` makes it again.
Tokenizer: byte-level BPE of 4096 entries, trained on an earlier corpus of the same kind.

## Training
transformers' class, {steps:,} steps of {tokens_a_step:,} tokens: {passes} passes over the whole, then {varied_passes} over
everything but the more repetitive stories; rows of 1024 tokens that begin with a document. Muon (momentum 0.95) for the
hidden matrices and AdamW (0.9, 0.95) for the rest, weight decay 0.1, peak learning rate {lr}: 100 steps of warm-up,
constant, then a straight line to zero over the last 40 %, in which the second part of the data is read; seed {seed}. bf16
weights and activations with float32 master weights. {seconds:.0f} s on an H200 that trained the other
three at the same time.

## Held-out loss
| model | parameters | nats a token |
| --- | --- | --- |
| **{name}** | {parameters:,} | **{held_out_loss:.4f}** |
{baselines}

{comparison}

## Outputs
Twenty requests that the prompt lists cannot make, nearly all with characters and subjects that are in none of them,
through the chat template, at most 320 new tokens, float32 on a CPU; unedited and all shown. Sampled as
generation_config.json says: temperature 0.7, top-p 0.9, repetition penalty 1.15; seed 7.
Greedy is the bare argmax, without a penalty. "cut" marks an answer that reached 320 tokens without an end token.

{outputs}
"""


def quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def outputs(samples: list[dict]) -> str:
    parts = []
    for n, s in enumerate(samples, 1):
        parts.append(f"### {n}. {s['request']}")
        for way in "greedy", "sampled":
            parts.append(f"*{way}{'' if s[way + '_ended'] else ', cut'}*\n\n{quote(s[way])}")
    return "\n\n".join(parts)


def loops(text: str) -> bool:
    words = re.findall(r"[a-z']+", text.lower())
    return max(Counter(zip(words, words[1:], words[2:], words[3:])).values(), default=0) > LOOP


def loop_counts(samples: list[dict]) -> str:
    looping, ended = ({way: sum(test(s, way) for s in samples) for way in ("greedy", "sampled", "free")}
                      for test in (lambda s, way: loops(s[way]), lambda s, way: s[way + "_ended"]))
    return (f"Of the {len(samples)} outputs below, {looping['sampled']} sampled ones repeat a run of four words more than {LOOP}"
            f" times and\n{ended['sampled']} end by themselves within 320 tokens; without the repetition penalty of"
            f" generation_config.json {looping['free']} and\n{ended['free']}; greedily, without a penalty either,"
            f" {looping['greedy']} and {ended['greedy']}.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--baseline", required=True, type=Path, nargs="+")
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--corpus", required=True, type=Path)
    parser.add_argument("--conversations", required=True, type=int)
    args = parser.parse_args()
    log, samples, corpus = (json.loads(p.read_text()) for p in (args.log, args.samples, args.corpus))
    baselines = [json.loads(p.read_text()) for p in args.baseline]
    rows = [f"| {b['shape']} (`{'Qwen3ForCausalLM' if 'dense' in b['shape'] else b['shape']}`, {b['steps']:,} steps) | "
            f"{b['parameters']:,} | {b['held_out_loss']:.4f} |" for b in baselines]
    name = log["shape"]
    comparison = ("This checkpoint is itself a plain dense transformer; the line below it is the larger one that the other two "
                  "are measured against." if name == "tiny-dense" else
                  "The dense model has the same data, tokenizer, recipe and seed, and as nearly the same size as whole "
                  "layers allow; it is not shipped.")
    fields = {k: v for k, v in log.items() if not k.endswith("curve")}
    card = CARD.format(name=name, about=ABOUT[name], baselines="\n".join(rows), comparison=comparison,
                       outputs=outputs(samples), conversations=args.conversations, loops=loop_counts(samples),
                       **fields, **corpus)
    (args.model / "README.md").write_text(card)


if __name__ == "__main__":
    main()
