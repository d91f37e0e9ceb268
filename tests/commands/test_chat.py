"""`vtlite chat`: turns, commands, a context that fills up, and Ctrl-C in a real terminal."""

import io
import os
import re
import select
import subprocess
import sys
import time

import pytest

from vtlite.cli import main
from vtlite.commands.chat import Conversation, _converse
from vtlite.engine.llm import LLM

GREEDY = ["--device", "cpu", "--temperature", "0"]


@pytest.fixture
def chat(chat_checkpoint, monkeypatch, capsys):
    """chat(lines, *options) pipes lines into `vtlite chat`; returns (exit code, standard output, standard error)."""
    def run(lines, *options):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()), encoding="utf-8"))
        code = main(["chat", str(chat_checkpoint), *GREEDY, *options])
        return code, *capsys.readouterr()
    return run


@pytest.fixture(scope="module")
def answer(chat_checkpoint):
    """answer(prompt text) -> the eight greedy tokens after it, as text."""
    llm = LLM(chat_checkpoint, device="cpu")
    params = llm.engine.sampling_params(temperature=0.0, max_tokens=8)
    return lambda prompt: llm.generate(prompt, params)[0].outputs[0].text


EIGHT = ("--max-tokens", "8")


def test_a_pipe_gets_one_answer_per_line_with_the_history_in_view(chat, answer):
    first = answer("<user>one<assistant>")
    second = answer(f"<user>one<assistant>{first}<user>two<assistant>")
    code, out, err = chat(["one", "", "two"], *EIGHT)
    assert code == 0
    assert out == f"{first}\n{second}\n"
    assert err == "(cut off at --max-tokens 8)\n" * 2


def test_reset_forgets_and_system_stays(chat, answer):
    code, out, err = chat(["one", "/reset", "/system be kind", "/system", "two", "/exit", "never read"], *EIGHT)
    assert code == 0
    assert out == f"{answer('<user>one<assistant>')}\n{answer('<system>be kind<user>two<assistant>')}\n"
    assert "The conversation is forgotten." in err
    assert err.count("system message: be kind") == 2


def test_help_and_unknown_commands_are_not_sent_to_the_model(chat):
    code, out, err = chat(["/help", "/rest"])
    assert (code, out) == (0, "")
    assert "/reset          forget the conversation" in err
    assert "There is no command /rest; /help lists those there are." in err


def test_turns_that_no_longer_fit_are_forgotten_oldest_first_and_it_says_so(chat, answer):
    # 64 tokens of context, 8 of them kept for an answer; a turn of these is 36 tokens or so
    message = "m" * 20
    code, out, err = chat([message, message], "--max-model-len", "64", *EIGHT)
    assert code == 0
    assert "The conversation no longer fits into 64 tokens: forgot the oldest turn." in err
    assert out == f"{answer(f'<user>{message}<assistant>')}\n" * 2


def test_a_message_longer_than_the_context_is_refused(chat):
    code, out, err = chat(["m" * 80], "--max-model-len", "64")
    assert (code, out) == (2, "")
    assert "maximum context length is 64 tokens" in err


def test_a_model_without_a_chat_template_is_refused_with_what_to_use(tiny_checkpoint, capsys):
    assert main(["chat", str(tiny_checkpoint("qwen3")), *GREEDY]) == 2
    assert "has no chat template, so it cannot chat; use vtlite generate" in capsys.readouterr().err


def test_neither_ctrl_c_at_the_prompt_nor_a_refused_message_ends_the_program(chat_checkpoint, monkeypatch, capsys):
    typed = iter([KeyboardInterrupt, "m" * 600, "hi", EOFError])

    def keyboard(prompt):
        text = next(typed)
        if isinstance(text, str):
            return text
        raise text

    monkeypatch.setattr("builtins.input", keyboard)
    llm = LLM(chat_checkpoint, device="cpu")
    conversation = Conversation(llm, llm.engine.sampling_params(temperature=0.0, max_tokens=8))
    assert _converse(conversation) == 0
    assert [question["content"] for question, _ in conversation.turns] == ["hi"]
    captured = capsys.readouterr()
    assert "Ctrl-D or /exit leaves." in captured.err
    assert "maximum context length is 512 tokens" in captured.err


SECONDS = 240           # after which something that should happen will not
IN_TERMINAL = """
import fcntl, sys, termios, time
from vtlite.cli import main
from vtlite.commands.answer import Answer

def held(answer, step=Answer._step):
    while len(answer.output.token_ids) == 20 and not answer._stop_asked:
        time.sleep(0.01)
    return step(answer)

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
Answer._step = held
sys.exit(main(sys.argv[1:]))
"""


class Terminal:
    """`vtlite` in a pseudo-terminal that it controls, so that Ctrl-C reaches it the way a keyboard's does. After twenty
    tokens an answer waits for it."""

    def __init__(self, *arguments):
        self.keyboard, screen = os.openpty()
        command = [sys.executable, "-c", IN_TERMINAL, *arguments]
        self.process = subprocess.Popen(command, stdin=screen, stdout=screen, stderr=screen, start_new_session=True,
                                        env=os.environ | {"TERM": "dumb"})
        os.close(screen)

    def type(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def wait_for(self, pattern: str) -> str:
        """What the screen showed up to and with a match of `pattern`."""
        shown, deadline = "", time.monotonic() + SECONDS
        while not re.search(pattern, shown):
            assert time.monotonic() < deadline, f"no {pattern!r} in {shown!r}"
            if select.select([self.keyboard], [], [], 0.1)[0]:
                shown += os.read(self.keyboard, 1).decode("latin-1")
        return shown

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keyboard)


def test_ctrl_c_stops_the_answer_and_not_the_program(chat_checkpoint):
    terminal = Terminal("chat", str(chat_checkpoint), *GREEDY)
    try:
        terminal.wait_for("> ")
        terminal.type("hello\r")
        terminal.wait_for(r"hello\r\n[^\n]{3}")               # the echo, and the beginning of an answer
        terminal.type("\x03")
        terminal.wait_for(r"\(interrupted\)\s+> ")
        terminal.type("/system\r")
        terminal.wait_for(r"no system message\s+> ")
        terminal.type("\x04")
        assert terminal.process.wait(timeout=SECONDS) == 0
    finally:
        terminal.close()
