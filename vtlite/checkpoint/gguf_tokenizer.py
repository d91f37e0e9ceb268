"""tokenizer.json and tokenizer_config.json from the metadata of a GGUF.

A GGUF stores tokens, merges and the *name* of the pre-tokenizer; what the name means is a table here.
An unknown name is refused: a wrong split of the text gives plausible ids that the model never saw.
"""

import json
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from vtlite.checkpoint.gguf_file import GGUFFile
from vtlite.checkpoint.gguf_sentencepiece import sentencepiece_bpe
from vtlite.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5   # tokenizer.ggml.token_type
SPECIAL = {UNKNOWN: True, CONTROL: True, USER_DEFINED: False}    # kinds matched before the model: skipped in answers?
INSTEAD = "Use the model's safetensors checkpoint instead"

# Contractions, words with one leading symbol, runs of digits, punctuation, newlines, blanks.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
         r"|\s+")


def _gpt2():
    return [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]


def _smollm():
    return [pre_tokenizers.Digits(individual_digits=True), *_gpt2()]


def _words(digits: str):
    pattern = Regex(WORDS.replace("DIGITS", digits))
    return [pre_tokenizers.Split(pattern, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


PRE_TOKENIZERS = {
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "qwen2": lambda: _words(r"\p{N}"),
    "llama-bpe": lambda: _words(r"\p{N}{1,3}"),
}


def write_tokenizer(file: GGUFFile, directory: Path) -> None:
    """Write both files into `directory`. CheckpointError if the tokenizer is of a kind that is not implemented."""
    tokens = file.get("tokenizer.ggml.tokens", list)
    kinds = file.get("tokenizer.ggml.token_type", list, [NORMAL] * len(tokens))
    model, pre = file.get("tokenizer.ggml.model", str), file.get("tokenizer.ggml.pre", str, "absent")
    if not all(isinstance(token, str) for token in tokens):
        raise CheckpointError(f"{file.path}: tokenizer.ggml.tokens should hold strings")
    if len(kinds) != len(tokens):
        raise CheckpointError(f"{file.path}: {len(tokens)} tokens but {len(kinds)} token types")
    used = {token: id for id, (token, kind) in enumerate(zip(tokens, kinds)) if kind != UNUSED}
    if len(used) != sum(kind != UNUSED for kind in kinds):
        raise CheckpointError(f"{file.path}: tokenizer.ggml.tokens holds the same token twice")

    if model == "gpt2":
        backend = _byte_level_bpe(file, used, pre)
    elif model == "llama":
        backend = sentencepiece_bpe(file, used, [token for token, kind in zip(tokens, kinds) if kind == NORMAL])
    else:
        raise CheckpointError(f"{file.path}: tokenizer.ggml.model is {model!r}; implemented: 'gpt2' (byte-level BPE) and "
                              f"'llama' (sentencepiece BPE). {INSTEAD}")
    backend.add_tokens([AddedToken(token, special=SPECIAL[kind], normalized=False)
                        for token, kind in zip(tokens, kinds) if kind in SPECIAL])
    ids = {name: token_id(file, key) for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"),
                                                       ("pad", "padding"))}
    special = {name: None if id is None else tokens[id] for name, id in ids.items()}
    add_bos = file.get("tokenizer.ggml.add_bos_token", bool, model == "llama" or pre == "llama-bpe")
    if file.get("tokenizer.ggml.add_eos_token", bool, False):
        raise CheckpointError(f"{file.path}: tokenizer.ggml.add_eos_token is set, but a prompt that ends in EOS is over")
    if add_bos:
        if ids["bos"] is None:
            raise CheckpointError(f"{file.path}: add_bos_token is set, but there is no tokenizer.ggml.bos_token_id")
        backend.post_processor = processors.TemplateProcessing(
            single=[special["bos"], "$A"], pair=[special["bos"], "$A", "$B"], special_tokens=[(special["bos"], ids["bos"])])
    backend.save(str(directory / "tokenizer.json"))
    config = {f"{name}_token": token for name, token in special.items()} | {
        "add_bos_token": add_bos, "clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}
    if "tokenizer.chat_template" in file.metadata:
        config["chat_template"] = _chat_template(file)
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False), encoding="utf-8")


def _byte_level_bpe(file: GGUFFile, used: dict[str, int], pre: str) -> tokenizers.Tokenizer:
    if pre not in PRE_TOKENIZERS:
        raise CheckpointError(f"{file.path}: tokenizer.ggml.pre is {pre!r}, which is not implemented (implemented: "
                              f"{', '.join(PRE_TOKENIZERS)}). {INSTEAD}")
    merges = [tuple(str(merge).split(" ", 1)) for merge in file.get("tokenizer.ggml.merges", list)]
    for pair in merges:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= used.keys():
            raise CheckpointError(f"{file.path}: merge {' '.join(pair)!r} does not join two tokens of the vocabulary into "
                                  "a third")
    backend = tokenizers.Tokenizer(models.BPE(used, merges, ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre]())
    backend.decoder = decoders.ByteLevel()
    return backend


def token_id(file: GGUFFile, key: str) -> int | None:
    """`tokenizer.ggml.{key}_token_id`, None if it is absent."""
    name = f"tokenizer.ggml.{key}_token_id"
    if name not in file.metadata:
        return None
    id, tokens = file.get(name, int), file.get("tokenizer.ggml.tokens", list)
    if not 0 <= id < len(tokens):
        raise CheckpointError(f"{file.path}: {name} is {id}, but there are {len(tokens)} tokens")
    return id


def _chat_template(file: GGUFFile) -> str | list[dict]:
    """The template, or, if there are named ones beside it, the list that tokenizer_config.json holds then."""
    default, prefix = file.get("tokenizer.chat_template", str), "tokenizer.chat_template."
    named = {key.removeprefix(prefix): file.get(key, str) for key in file.metadata if key.startswith(prefix)}
    if not named:
        return default
    return [{"name": name, "template": text} for name, text in ({"default": default} | named).items()]
