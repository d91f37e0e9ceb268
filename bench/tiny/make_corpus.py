"""Let SmolLM2-135M-Instruct answer the requests of prompts.py, thousands of conversations at a time.

    python make_corpus.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --out raw.jsonl --minutes 4

A slot holds one conversation as a row of tokens. Each step feeds every slot its next token: a given one while it
reads a message, else the one just sampled. Reading, answering and later turns are thus one loop, and on a GPU the
step is one CUDA graph. Every POLL steps the host takes the finished slots, appends the next user message or starts
a new conversation.

A model this small falls into loops, so each draw is corrected three ways before temperature and min-p: a token that
begins a word and would go on with a repeat of the answer loses LOOP per token of the repeat past the second (within a
word that would spoil names: Maurolea for Maurice); a plain word among the answer's last WINDOW tokens loses NOVELTY;
and the end token gains with the length of the answer.
Each line out: {"kind", "system", "messages": [{"role", "content"}, ...], "finished"}.
"""
import argparse
import json
import os
import time
from random import Random

import gguf
import numpy as np
import torch

import prompts
import smollm2

POLL = 32
TEMPERATURE, MIN_P = 0.8, 0.1
LOOP, LONGEST_REPEAT = 1.5, 8
NOVELTY, WINDOW = 0.25, 64
ENDING, EXPECTED = 0.035, 90             # per token of an answer past its expected length


def message(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def opening(request: prompts.Request) -> str:
    return message("system", request.guide) + message("user", request.turns[0]) + "<|im_start|>assistant\n"


def next_turn(user: str) -> str:
    return "\n" + message("user", user) + "<|im_start|>assistant\n"


class Conversation:
    def __init__(self, request):
        self.request, self.answers, self.finished = request, [], True   # answers: lists of token ids


class Slots:
    """The rows on the device: tokens [B, S], position of the token fed next, length given, done."""

    def __init__(self, decoder: smollm2.Decoder, slots: int, length: int, device: str):
        self.decoder, self.device, self.last = decoder, device, length - 1
        self.tokens = torch.zeros(slots, length, dtype=torch.int64, device=device)
        self.pos = torch.zeros(slots, dtype=torch.int64, device=device)
        self.given = torch.ones(slots, dtype=torch.int64, device=device)
        self.done = torch.ones(slots, dtype=torch.bool, device=device)
        self.column = torch.zeros(49152, dtype=torch.int64, device=device)               # token -> column of the logits
        self.column[decoder.allowed] = torch.arange(len(decoder.allowed), device=device)
        self.novelty = NOVELTY * torch.tensor(decoder.plain_words, device=device)        # [A]
        self.loop = LOOP * torch.tensor(decoder.word_starts, device=device)              # [A]
        self.at = torch.arange(length, device=device)

    def correct(self, logits: torch.Tensor) -> torch.Tensor:
        """Take LOOP and NOVELTY off the logits [B, A] of tokens already in the answer, and hasten its end."""
        inside = (self.at >= self.given[:, None]) & (self.at <= self.pos[:, None])       # [B, S], the answer so far
        column = self.column[self.tokens]
        recent = torch.where(inside & (self.at > self.pos[:, None] - WINDOW), column, 0)
        logits = logits.scatter(1, recent, logits.gather(1, recent) - self.novelty[recent])
        same, repeat = inside, torch.zeros_like(self.tokens)       # repeat: how far what precedes a token matches the end
        for back in range(LONGEST_REPEAT):
            last = self.tokens.gather(1, (self.pos - back).clamp(min=0)[:, None])
            same = same & (self.tokens.roll(back + 1, 1) == last) & (self.at > self.given[:, None] + back)
            repeat += same
        excess = (repeat - 2).clamp(min=0)
        logits.scatter_add_(1, torch.where(excess > 0, column, 0), -self.loop[column] * excess)
        logits[:, 0] = -1e9                                                              # END_OF_TEXT, the spare column
        logits[:, 1] += ENDING * (self.pos - self.given - EXPECTED).clamp(min=0)
        return logits

    def step(self):
        rows = self.decoder.rows
        logits = self.decoder.forward(self.tokens[rows, self.pos], self.pos)
        p = torch.softmax(self.correct(logits.float()) / TEMPERATURE, -1)
        p.masked_fill_(p < MIN_P * p.amax(-1, keepdim=True), 0.0)
        choice = (p / torch.empty_like(p).exponential_()).argmax(-1)                    # a draw from p
        sampled = self.decoder.allowed[choice]
        there = (self.pos + 1).clamp(max=self.last)
        reading = there < self.given
        token = torch.where(reading, self.tokens[rows, there], sampled)
        self.tokens[rows, there] = torch.where(self.done, self.tokens[rows, there], token)
        self.pos.copy_(torch.where(self.done, self.pos, there))
        ended = ~reading & ((token == smollm2.IM_END) | (token == smollm2.END_OF_TEXT))
        self.done |= ended | (self.pos >= self.last)

    def capture(self):
        """The step as a replayable function: a CUDA graph where there is a GPU."""
        if self.device != "cuda":
            return self.step
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    def read(self):
        """Indices, token rows, positions and given lengths of the finished slots, on the host."""
        index = self.done.nonzero().flatten()
        return index.tolist(), *(x[index].cpu().numpy() for x in (self.tokens, self.pos, self.given))

    def write(self, index, rows, pos, given):
        put = lambda x: torch.from_numpy(np.asarray(x)).to(self.device)
        index = put(index)
        self.tokens[index], self.pos[index], self.given[index] = put(rows), put(pos), put(given)
        self.done[index] = False


def refill(slots, talks, finished, rng, tok, length):
    """Book the answers of finished slots; go on with the conversation or start another."""
    index, rows, pos, given = slots.read()
    fresh = []
    for n, i in enumerate(index):
        talk = talks[i]
        if talk is not None:
            talk.finished = rows[n, pos[n]] == smollm2.IM_END
            talk.answers.append(rows[n, given[n]:pos[n] + (not talk.finished)].astype(np.int32))
            if talk.finished and len(talk.answers) < len(talk.request.turns):
                more = tok.encode(next_turn(talk.request.turns[len(talk.answers)]), add_special_tokens=False).ids
                if pos[n] + 1 + len(more) < length - 160:
                    rows[n, pos[n] + 1:pos[n] + 1 + len(more)] = more
                    given[n] = pos[n] + 1 + len(more)
                    continue
            finished.append(talk)
        talks[i] = Conversation(prompts.sample(rng))
        fresh.append(n)
    texts = [opening(talks[index[n]].request) for n in fresh]
    for n, encoding in zip(fresh, tok.encode_batch(texts, add_special_tokens=False)):
        rows[n, :len(encoding.ids)], pos[n], given[n] = encoding.ids, 0, len(encoding.ids)
    if index:
        slots.write(index, rows, pos, given)


def save(path, finished, tok):
    answers = iter(tok.decode_batch([a.tolist() for talk in finished for a in talk.answers]))
    with open(path, "w") as out:
        for talk in finished:
            messages = []
            for user, _ in zip(talk.request.turns, talk.answers):
                messages += [dict(role="user", content=user), dict(role="assistant", content=next(answers).strip())]
            out.write(json.dumps(dict(kind=talk.request.kind, system=talk.request.system, messages=messages,
                                      finished=bool(talk.finished))) + "\n")


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--slots", type=int, default=5120)
    parser.add_argument("--length", type=int, default=480)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    start = time.time()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    torch.manual_seed(args.seed)
    rng = Random(args.seed)
    reader = gguf.GGUFReader(args.gguf)
    tok = smollm2.tokenizer(reader)
    slots = Slots(smollm2.Decoder(reader, args.slots, args.length, device), args.slots, args.length, device)
    talks, finished = [None] * args.slots, []
    run = slots.capture()
    slots.done.fill_(True)
    print(f"ready after {time.time() - start:.1f} s", flush=True)
    steps, begun, told = 0, time.time(), 0.0
    while time.time() - start < args.minutes * 60:
        refill(slots, talks, finished, rng, tok, args.length)
        for _ in range(POLL):
            run()
        steps += POLL
        if time.time() - told > 20:
            told = time.time()
            rate = sum(len(a) for talk in finished for a in talk.answers) / (told - begun + 1e-9)
            print(f"{steps} steps, {(told - begun) / steps * 1e3:.1f} ms each, {len(finished)} conversations, "
                  f"{rate:.0f} answer tokens/s", flush=True)
    save(args.out, finished, tok)
    total = sum(len(a) for talk in finished for a in talk.answers)
    print(f"{len(finished)} conversations, {total / 1e6:.2f} M answer tokens, {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
