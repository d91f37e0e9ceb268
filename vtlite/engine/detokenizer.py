"""Token ids to text while they arrive: never half a character, never the beginning of a possible stop string."""

REPLACEMENT = "\ufffd"
LONGEST_PARTIAL = 3        # an unfinished UTF-8 character shows as at most three replacement characters
CONTEXT = 6                # ids decoded again before new ones, so that spaces between words come out right


class Detokenizer:
    """Streams the text of one answer.

    All text returned by `push` and `flush`, joined, is the decoded answer, cut at the first stop string.
    """

    def __init__(self, tokenizer, prompt_ids: list[int], stop: tuple[str, ...] = (),
                 include_stop: bool = False, skip_special_tokens: bool = True):
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._stop, self._include_stop = stop, include_stop
        self._window = list(prompt_ids[-CONTEXT:])           # ids decoded together
        self._seen = self._decode(self._window)              # the window's text that is already decided
        self._clean = len(self._window)                      # ids of the window when it was last decided in full
        self._text = ""                                      # decided text of the answer
        self._sent = 0                                       # characters of _text returned so far
        self.stopped_by: str | None = None                   # the stop string that was found

    def push(self, token_id: int, may_stop: bool = True) -> str:
        """Add one id; return the text that is now decided. A stop string is looked for only if `may_stop`."""
        self._window.append(token_id)
        old_length = len(self._text)
        self._read(hold_partial=True)
        if may_stop and self._find_stop(old_length):
            return self._send(len(self._text))
        held = 0 if self._include_stop else self._possible_stop()
        return self._send(len(self._text) - held)

    def flush(self) -> str:
        """The answer is over: return everything that was held back."""
        if self.stopped_by is None:
            self._read(hold_partial=False)
        return self._send(len(self._text))

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip_special_tokens)

    def _read(self, hold_partial: bool) -> None:
        """Decode the window and move what is decided to _text."""
        text = self._decode(self._window)
        if not text.startswith(self._seen):
            # Byte-fallback decoders show a whole run of bytes as invalid while its last character is unfinished.
            if hold_partial and len(self._window) - self._clean <= LONGEST_PARTIAL:
                return
            self._restart(self._clean)
            text = self._decode(self._window)
        end = len(text)
        if hold_partial:
            while end > len(self._seen) and len(text) - end < LONGEST_PARTIAL and text[end - 1] == REPLACEMENT:
                end -= 1
        self._text += text[len(self._seen) : end]
        self._seen = text[:end]
        if end == len(text):
            self._clean = len(self._window)
            if len(self._window) > 2 * CONTEXT:
                self._restart(len(self._window) - CONTEXT)

    def _restart(self, first: int) -> None:
        """Shorten the window to the ids from `first` on, unless that would cut inside a character."""
        decided = self._decode(self._window[first : self._clean])
        if not decided.startswith(REPLACEMENT):
            self._window, self._seen = self._window[first:], decided
            self._clean -= first

    def _find_stop(self, old_length: int) -> bool:
        """Cut _text at the stop string that completes first in its new part; among ties, the first listed."""
        best_end = None
        for stop in self._stop:
            start = self._text.find(stop, max(0, old_length - len(stop) + 1))
            if start >= 0 and (best_end is None or start + len(stop) < best_end):
                best_end, best_start, self.stopped_by = start + len(stop), start, stop
        if best_end is None:
            return False
        self._text = self._text[: best_end if self._include_stop else best_start]
        return True

    def _possible_stop(self) -> int:
        """Length of the longest end of the text that could grow into a stop string."""
        for length in range(max(map(len, self._stop), default=1) - 1, 0, -1):
            tail = self._text[-length:]
            if len(tail) == length and any(stop.startswith(tail) for stop in self._stop):
                return length
        return 0

    def _send(self, end: int) -> str:
        text = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return text
