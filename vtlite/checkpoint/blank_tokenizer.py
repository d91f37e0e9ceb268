"""A tokenizer for a model that came without one: ids have no text, and there is no text to encode."""

from collections.abc import Sequence
from pathlib import Path

from vtlite.checkpoint.tokenizer import Tokenizer
from vtlite.errors import RequestError


class BlankTokenizer:
    """The face of `Tokenizer`."""

    eos_token_id = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        raise RequestError("this model has no tokenizer; give the prompt as token ids", "prompt")

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return ""

    def token_text(self, id: int) -> str:
        return ""


def tokenizer_or_blank(directory: Path) -> Tokenizer | BlankTokenizer:
    """The tokenizer of a checkpoint directory, if it has one."""
    return Tokenizer(directory) if (directory / "tokenizer.json").is_file() else BlankTokenizer()
