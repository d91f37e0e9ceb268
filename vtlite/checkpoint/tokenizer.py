"""Text to token ids and back: tokenizer.json through the `tokenizers` package, special tokens by name."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from vtlite.strict_json import quote, read_object
from vtlite.errors import CheckpointError, RequestError


class Tokenizer:
    """tokenizer.json of a checkpoint directory, and the names tokenizer_config.json gives to its special tokens.

    Ids at or above `vocab_size` are legal (embeddings are often padded) and decode to nothing.
    CheckpointError if tokenizer.json is missing or broken, or if eos_token is not one of its tokens.
    """

    def __init__(self, directory: str | Path):
        path = Path(directory) / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{directory}: no tokenizer.json; older tokenizer formats are not read, "
                                  "save the tokenizer as tokenizer.json with transformers first")
        try:
            self.backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:   # the package raises plain Exception
            raise CheckpointError(f"{path}: the tokenizers package cannot read it ({error})") from None
        self.backend.no_truncation()
        self.backend.no_padding()
        vocabulary = self.backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1

        named = special_tokens(directory)
        self.bos_token, self.eos_token, self.pad_token = (named.get(f"{name}_token") for name in ("bos", "eos", "pad"))
        if self.eos_token is not None and self.eos_token not in vocabulary:
            raise CheckpointError(f"{path}: eos_token {self.eos_token!r} of tokenizer_config.json is not one of its "
                                  f"{len(vocabulary)} tokens")
        self.eos_token_id = vocabulary.get(self.eos_token)
        self._special_ids = {id for id, token in self.backend.get_added_tokens_decoder().items() if token.special}
        decoder = self.backend.decoder   # its pickled state is its part of tokenizer.json
        self._decoders = [] if decoder is None else _flatten(json.loads(decoder.__getstate__()))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`. Control tokens spelled out in the text become those tokens.

        RequestError if the text holds lone surrogates, which no UTF-8 text can.
        """
        try:
            return self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError:   # what the package raises for a str that is not UTF-8
            at = next((i for i, c in enumerate(text) if 0xD800 <= ord(c) <= 0xDFFF), None)
            if at is None:
                raise
            raise RequestError(f"the text holds the lone surrogate U+{ord(text[at]):04X} at character {at}; "
                               "send valid Unicode") from None

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD, ids outside the vocabulary become nothing."""
        known = [id for id in ids if 0 <= id < self.vocab_size]
        return self.backend.decode(known, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, id: int) -> bytes:
        """The bytes that token `id` adds to a text: a part of a character, perhaps. b"" outside the vocabulary.

        The bytes of a sequence of ids, joined, are the UTF-8 of their `decode` with special tokens kept
        (but for the one leading space that sentencepiece decoders strip from a text).
        """
        token = self.backend.id_to_token(id) if 0 <= id < self.vocab_size else None
        if token is None:
            return b""
        for decoder in self._decoders:
            match decoder:
                case {"type": "ByteLevel"}:
                    if all(character in BYTE_OF for character in token):
                        return bytes(BYTE_OF[character] for character in token)
                case {"type": "ByteFallback"}:
                    if byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", token):
                        return bytes.fromhex(byte[1])
                case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
                    token = token.replace(pattern, content)
                case {"type": "Metaspace", "replacement": replacement}:
                    token = token.replace(replacement, " ")
        return token.encode()

    def token_text(self, id: int) -> str:
        """Token `id` alone as text; U+FFFD stands for an incomplete character."""
        return self.token_bytes(id).decode("utf-8", errors="replace")

    def is_special(self, id: int) -> bool:
        """Whether `decode` drops the token when it skips special tokens."""
        return id in self._special_ids


def special_tokens(directory: str | Path) -> dict[str, str]:
    """{"bos_token": "<s>", ...}: the special tokens that tokenizer_config.json names; {} without that file."""
    path = Path(directory) / "tokenizer_config.json"
    config = read_object(path) if path.is_file() else {}
    named = {}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"):
        value = config.get(key)
        text = value.get("content") if isinstance(value, dict) else value   # older files store the whole AddedToken
        if value is not None and not isinstance(text, str):
            raise CheckpointError(f"{path}: '{key}' should be a token, found {quote(value)}")
        if text is not None:
            named[key] = text
    return named


def _flatten(decoder: dict) -> list[dict]:
    """The decoders of tokenizer.json in the order they apply."""
    if decoder["type"] == "Sequence":
        return [leaf for part in decoder["decoders"] for leaf in _flatten(part)]
    return [decoder]


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable Latin-1 stands for itself, the other bytes for U+0100 and up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_OF = _byte_alphabet()
