"""What transformers computes for the bundled checkpoints: goldens for tests of whole models.

    python tests/golden/make_bundled.py          (needs torch and transformers; writes bundled_<name>.npz beside this file)

float32 arithmetic on the bf16 weights, on a CPU, eager attention, transformers' reference paths. Of 8 prompts,
whose lengths cross the delta net's 64-token chunks (1, 5, 63, 64, 65, ...):
    prompt_0i      [T]        int32    token ids of prompt i
    top_ids_0i     [T, 8]     int32    the eight likeliest next tokens at every position, likeliest first
    top_logits_0i  [T, 8]     float32
    last_logits    [8, 4096]  float32  logits after each prompt
    tokens         [8, 64]    int32    64 greedy tokens, going on past end tokens
    logprobs       [8, 64]    float32  log-softmax of each
    margins        [8, 64]    float32  its logit minus the second's
and `about`, a JSON string: versions and the sha256 of the weights.
"""
import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent
BUNDLED = HERE.parent.parent / "vtlite" / "checkpoint" / "bundled"
NAMES = "tiny-hybrid", "tiny-mla", "tiny-dense"
TOP, NEW = 8, 64
STACKED = "last_logits", "tokens", "logprobs", "margins"

STORY = ("Once upon a time, in a small house by the sea, there lived an old man and his cat. Every morning they walked down "
         "to the water. The cat chased the waves, and the old man looked for shells. One day the wind was strong, and a "
         "little boat came to the shore. There was nobody in it, only a blue bag and a lamp. The cat jumped into the boat "
         "and would not come out again. \"What is it?\" asked the old man. He took the bag and opened it. Inside was a map, "
         "and on the map was their own small house, with a red mark under the kitchen floor. They went home as fast as they "
         "could. The old man took his spade, and the cat sat on the table and watched. ")


def chat(*turns: str) -> list[dict]:
    return [dict(role=("user", "assistant")[n % 2], content=turn) for n, turn in enumerate(turns)]


def prompts(tok) -> list[list[int]]:
    """One token; a few; 63, 64 and 65 of a story; all of it and some again; a request; a chat in its third turn."""
    story = tok.encode(STORY + STORY[:300], add_special_tokens=False)
    apply = lambda messages: tok.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    return [story[:1], story[:5], story[:63], story[:64], story[:65], story,
            apply(chat("Tell me a story about a hamster named Nibbles who finds a tiny ladder.")),
            apply(chat("What is a puddle?", "A puddle is a little water on the ground after the rain.",
                       "Can children jump in it?"))]


@torch.inference_mode()
def record(model, prompt: list[int], count: int = NEW) -> dict[str, np.ndarray]:
    ids, cache, fed = list(prompt), None, torch.tensor([prompt])
    for _ in range(count):
        out = model(input_ids=fed, past_key_values=cache, use_cache=True)
        cache, token = out.past_key_values, int(out.logits[0, -1].argmax())
        ids.append(token)
        fed = torch.tensor([[token]])
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]             # [T + count, vocab]
    read, written = logits[:len(prompt)], logits[len(prompt) - 1:-1]
    new = torch.tensor(ids[len(prompt):])
    best = written.topk(2)
    assert torch.equal(best.indices[:, 0], new), "decoding and one pass over the text disagree: a near tie"
    top = read.topk(TOP)
    return dict(prompt=np.int32(prompt), top_ids=top.indices.int().numpy(), top_logits=top.values.numpy(),
                last_logits=read[-1].numpy(), tokens=new.int().numpy(),
                logprobs=written.log_softmax(-1).gather(1, new[:, None])[:, 0].numpy(),
                margins=(best.values[:, 0] - best.values[:, 1]).numpy())


def load(directory: Path):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                experts_implementation="eager").eval()


def main():
    for name in NAMES:
        tok, model = AutoTokenizer.from_pretrained(BUNDLED / name), load(BUNDLED / name)
        records = [record(model, prompt) for prompt in prompts(tok)]
        arrays = {key: np.stack([r[key] for r in records]) for key in STACKED}
        arrays |= {f"{key}_{i:02d}": r[key] for i, r in enumerate(records) for key in r if key not in STACKED}
        about = dict(model=name, torch=torch.__version__, transformers=transformers.__version__,
                     dtype="float32 on bf16 weights", sha256=sha256((BUNDLED / name / "model.safetensors").read_bytes()).hexdigest())
        path = HERE / f"bundled_{name.replace('-', '_')}.npz"
        np.savez_compressed(path, about=np.array(json.dumps(about)), **arrays)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, smallest margin {arrays['margins'].min():.4f}")


if __name__ == "__main__":
    main()
