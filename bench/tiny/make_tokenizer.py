"""Train the byte-level BPE that the three checkpoints share, and write its two files.

    python make_tokenizer.py --corpus corpus.jsonl --out tokenizer/

4096 entries: `<|endoftext|>`, `<|im_start|>`, `<|im_end|>`, the 256 bytes, then merges. Digits stand alone.
"""
import argparse
import json
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 4096
END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
CONFIG = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=None, eos_token=IM_END, pad_token=END_OF_TEXT,
              unk_token=None, add_bos_token=False, clean_up_tokenization_spaces=False, model_max_length=2048,
              chat_template=CHAT_TEMPLATE)


def texts(path: str, limit: int):
    """The messages of each conversation, without chat markers and role names."""
    with open(path) as corpus:
        for line in islice(corpus, limit):
            yield "\n".join(message["content"] for message in json.loads(line)["messages"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--documents", type=int, default=80_000)
    args = parser.parse_args()
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts(args.corpus, args.documents), trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=[END_OF_TEXT, IM_START, IM_END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    args.out.mkdir(parents=True, exist_ok=True)
    tok.save(str(args.out / "tokenizer.json"))
    (args.out / "tokenizer_config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    print(f"{tok.get_vocab_size()} entries", flush=True)


if __name__ == "__main__":
    main()
