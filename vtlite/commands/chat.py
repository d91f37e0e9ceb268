"""`vtlite chat`: a conversation in the terminal, or one message per line from a pipe."""

import argparse
import sys
from contextlib import suppress

from vtlite.commands.model import add_engine, add_model, add_sampling, load_llm, sampling_options
from vtlite.commands.terminal import notice, stream
from vtlite.errors import RequestError, VtliteError

MAX_TOKENS = 1024
EXITS = ("/exit", "/quit")
HELP = """\
/reset          forget the conversation
/system TEXT    set the system message (without TEXT: show it); the conversation stays
/help           this list
/exit           leave, as Ctrl-D does; Ctrl-C stops an answer"""
NOTES = f"""
In the conversation:
{HELP}

With standard input from a pipe or a file, every line is a message, and only the answers are printed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = NOTES
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", help="system message")
    add_sampling(parser, MAX_TOKENS)
    add_engine(parser)


def run(args: argparse.Namespace) -> int:
    given = sampling_options(args)

    from vtlite.checkpoint.chat_template import ChatTemplate
    from vtlite.checkpoint.resolve import resolve
    directory = resolve(args.model)
    if not ChatTemplate(directory).templates:
        raise RequestError(f"{directory} has no chat template, so it cannot chat; "
                           "use vtlite generate, which continues a text")
    llm = load_llm(directory, args)
    conversation = Conversation(llm, llm.engine.sampling_params(**given), args.system)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _answer_lines(conversation)
    notice(f"{directory.name}, {llm.engine.max_model_len} tokens of context. "
           "/help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.")
    return _converse(conversation)


class Conversation:
    """What was said so far, kept short enough for the model's context."""

    def __init__(self, llm, params, system: str | None = None):
        self.llm, self.params, self.system = llm, params, system
        self.turns: list[tuple[dict, dict]] = []         # (user's message, answer)

    def ask(self, text: str):
        """The Answer to a message, not yet begun. Forgets the oldest turns if the context is too short for all.

        RequestError if the message alone is too long, or if the chat template refuses it.
        """
        question = {"role": "user", "content": text}
        room = self.llm.engine.max_model_len - self._reserve
        dropped = 0
        while len(ids := self._encode(self.turns[dropped:], question)) > room and dropped < len(self.turns):
            dropped += 1
        self.llm.engine.check(ids, self.params)
        if dropped:
            del self.turns[:dropped]
            notice(f"The conversation no longer fits into {self.llm.engine.max_model_len} tokens: forgot the oldest "
                   f"{'turn' if dropped == 1 else f'{dropped} turns'}.")
        from vtlite.commands.answer import Answer
        return Answer(self.llm.engine, ids, self.params)

    def remember(self, text: str, answer: str) -> None:
        self.turns.append(({"role": "user", "content": text}, {"role": "assistant", "content": answer}))

    def _encode(self, turns: list[tuple[dict, dict]], question: dict) -> list[int]:
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        messages = system + [message for turn in turns for message in turn] + [question]
        return self.llm.tokenizer.encode(self.llm.render(messages), add_special_tokens=False)

    @property
    def _reserve(self) -> int:
        """Tokens kept free for an answer."""
        return min(self.params.max_tokens, self.llm.engine.max_model_len // 4)


def _converse(conversation: Conversation) -> int:
    with suppress(ImportError):
        import readline  # noqa: F401    gives input() line editing and history
    while True:
        try:
            text = input("> ")
            if text.strip() in EXITS:
                return 0
            if not _obey(conversation, text):
                _say(conversation, text)
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:                        # at the prompt, or pressed once more after it stopped an answer
            print()
            notice("Ctrl-D or /exit leaves.")
        except VtliteError as error:
            notice(str(error))


def _answer_lines(conversation: Conversation) -> int:
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")
    for line in sys.stdin:
        text = line.rstrip("\r\n")
        if text.strip() in EXITS:
            break
        if not _obey(conversation, text) and _say(conversation, text).interrupted:
            return 130
    return 0


def _obey(conversation: Conversation, text: str) -> bool:
    """Carry out a command; False if the text is a message to the model. An empty line is a command to do nothing."""
    name, _, rest = text.strip().partition(" ")
    if name == "/reset":
        conversation.turns.clear()
        notice("The conversation is forgotten.")
    elif name == "/system":
        conversation.system = rest.strip() or conversation.system
        notice(f"system message: {conversation.system}" if conversation.system else "no system message")
    elif name == "/help":
        notice(HELP)
    elif name[:1] == "/" and name[1:].isalpha():
        notice(f"There is no command {name}; /help lists those there are.")
    else:
        return not text.strip()
    return True


def _say(conversation: Conversation, text: str):
    """Stream the answer to a message and remember both; returns the Answer."""
    answer = conversation.ask(text)
    stream(answer)
    print(flush=True)
    if answer.output.finish_reason != "stop":
        notice(f"({answer.ending()})")
    if answer.output.text:
        conversation.remember(text, answer.output.text)
    return answer
