"""Logprobs as completions, chat completions and prompt_logprobs spell them."""

from collections.abc import Iterable, Sequence

from vtlite.engine.outputs import TokenLogprobs
from vtlite.serve.protocol import (ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, PromptLogprob, PromptLogprobs,
                                   TopLogprob)

LOWEST = -9999.0                # JSON has no -inf


class LogprobWriter:
    """Spells tokens by their text, or as "token_id:17" if `as_token_ids`."""

    def __init__(self, tokenizer, as_token_ids: bool):
        self._tokenizer, self._as_token_ids = tokenizer, as_token_ids

    def name(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_token_ids else self._tokenizer.token_text(token_id)

    def completion(self, entries: Iterable[tuple[int, TokenLogprobs | None]], offset: int) -> CompletionLogprobs:
        """(token, its logprobs) in a row, beginning `offset` characters into the choice. None: no past, no logprob.

        The top list holds the token itself, then the most likely ones; of those that read alike, the likeliest.
        """
        written = CompletionLogprobs()
        for token_id, at in entries:
            written.text_offset.append(offset)
            written.tokens.append(self.name(token_id))
            offset += len(written.tokens[-1])
            if at is None:
                written.token_logprobs.append(None)
                written.top_logprobs.append(None)
                continue
            written.token_logprobs.append(_finite(at[token_id].logprob))
            top: dict[str, float] = {}
            for i, entry in at.items():
                top.setdefault(self.name(i), _finite(entry.logprob))
            written.top_logprobs.append(top)
        return written

    def chat(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs], top: int) -> ChatLogprobs:
        """The token, and beside it the `top` most likely ones, which may include it."""
        content = []
        for token_id, at in zip(token_ids, logprobs, strict=True):
            best = sorted(at, key=lambda i: at[i].rank)[:top]
            beside = [TopLogprob(*self._entry(i, at)) for i in best]
            content.append(ChatTokenLogprob(*self._entry(token_id, at), beside))
        return ChatLogprobs(content)

    def prompt(self, positions: Sequence[TokenLogprobs | None]) -> PromptLogprobs:
        return [at and {str(i): PromptLogprob(_finite(p.logprob), p.rank, p.decoded_token) for i, p in at.items()}
                for at in positions]

    def _entry(self, token_id: int, at: TokenLogprobs) -> tuple[str, float, list[int]]:
        return self.name(token_id), _finite(at[token_id].logprob), list(self._tokenizer.token_bytes(token_id))


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
