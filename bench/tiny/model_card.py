"""Write a checkpoint's README.md from its training log, its samples and the logs of what it is compared with.

    python model_card.py --model tiny-hybrid/ --log logs/tiny-hybrid.json --baseline logs/dense-8m.json \\
        --samples samples/tiny-hybrid.json --topics topics/tiny-hybrid.json --corpus rows/corpus.json --conversations 150000
"""
import argparse
import json
from pathlib import Path

from clean_corpus import MOST_FOURS, loops

ABOUT = {
    "tiny-hybrid": "Qwen3_5ForCausalLM: 8 layers, three gated delta nets to one gated full attention; 4 key and 8 value\n"
                   "heads of 64; 4 query and 2 key-value heads of 64, half of each rotated; tied embeddings.",
    "tiny-mla": "DeepseekV2ForCausalLM: 6 layers of multi-head latent attention (latent 128, rope part 32, YaRN factor 4);\n"
                "one dense layer, then 8 routed experts, 2 active, and 1 shared; untied embeddings.",
    "tiny-dense": "Qwen3ForCausalLM: 6 layers, 4 query and 2 key-value heads of 64, QK-norm; tied embeddings.",
}

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

## What to expect
Mostly grammatical sentences in little stories that ramble, as its teacher of 135 M parameters does. It knows next to
nothing about the world. Asked for {stories} stories of at most 250 tokens about a named hero and a thing that no training
request names (`bench/tiny/topics.py`, sampled as below):

| | stories |
| --- | --- |
| keep the hero's name | {kept_name} |
| say what the hero is | {kept_hero} |
| say the thing twice or more | {kept_thing} |
| do all three | {kept_all} |
| say a run of four words more than {most_fours} times | {looping} |

Of the twenty outputs at the end of this page:

| | a run of four words more than {most_fours} times | ended by themselves within 320 tokens |
| --- | --- | --- |
{ways}

## Data
Text written by SmolLM2-135M-Instruct (Hugging Face, Apache-2.0, Q4_1 weights) on one H200: {conversations:,}
conversations from requests drawn from the lists in `bench/tiny/prompts.py`. Of these {conversations_kept:,} are kept: neither
cut off nor repetitive, and stories short, about the characters and the topic asked for. A few stories that go wrong late
are cut after a sentence that ends them. Each is packed {copies} times, every time with other names, animals, trades and
things, half of them made up, so that taking them from the request is what is learned: {train_documents:,} documents,
{train_tokens:.1f} M tokens to train on, and {held_out_documents:,} documents, {held_out_tokens:.2f} M tokens, held out. The held-out documents answer
requests that occur nowhere in the training part. A story that says too little of what it was asked for is a plain document
without its request; everything else is in the chat template. The corpus is not kept; `bench/tiny/` makes it again.
Tokenizer: byte-level BPE of 4096 entries, trained on an earlier corpus of the same kind.

## Training
transformers' class, {steps:,} steps of {tokens_a_step:,} tokens: {passes} passes over the whole, then {best_passes} over
the best of it, the stories that keep to their request and repeat little, and everything that is no story; rows of 1024
tokens that begin with a document. Muon (momentum 0.95) for the hidden matrices and AdamW (0.9, 0.95) for the rest, weight
decay 0.1, peak learning rate {lr}: 100 steps of warm-up, constant, then a straight line to zero over the last 40 %; the best
of the data is read in the last 20 %; seed {seed}. bf16 weights and activations with float32 master weights. {seconds:.0f} s
on an H200 that trained the other three at the same time.

## Held-out loss
| model | parameters | nats a token |
| --- | --- | --- |
| **{name}** | {parameters:,} | **{held_out_loss:.4f}** |
{baselines}

{comparison}

## Outputs
Twenty requests that the prompt lists cannot make, nearly all with characters and subjects that are in none of them,
through the chat template, at most 320 new tokens, float32 on a CPU; unedited and all shown. Sampled as
generation_config.json says: temperature {temperature}, top-p {top_p}, repetition penalty {repetition_penalty}; seed 7.
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


def ways(samples: list[dict]) -> str:
    named = {"sampled": "sampled", "free": "sampled without the repetition penalty", "greedy": "greedy, without it"}
    return "\n".join(f"| {name} | {sum(loops(s[way]) for s in samples)} | {sum(s[way + '_ended'] for s in samples)} |"
                     for way, name in named.items())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--baseline", required=True, type=Path, nargs="+")
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--topics", required=True, type=Path)
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
    kept = json.loads(args.topics.read_text())
    sampling = json.loads((args.model / "generation_config.json").read_text())
    card = CARD.format(name=name, about=ABOUT[name], baselines="\n".join(rows), comparison=comparison,
                       outputs=outputs(samples), conversations=args.conversations, ways=ways(samples), most_fours=MOST_FOURS,
                       stories=kept["stories"], looping=kept["counts"]["loops"],
                       **{f"kept_{what}": kept["counts"][what] for what in ("name", "hero", "thing", "all")},
                       **sampling, **fields, **corpus)
    (args.model / "README.md").write_text(card)


if __name__ == "__main__":
    main()
