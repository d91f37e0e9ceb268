"""An answer stops between two steps, and leaves the engine as it was."""

import re
import signal

import pytest

from vtlite.commands.answer import Answer
from vtlite.engine.llm import LLM
from vtlite.engine.sampling_params import SamplingParams
from vtlite.errors import VtliteError


@pytest.fixture(scope="module")
def llm(tiny_checkpoint):
    return LLM(tiny_checkpoint("qwen3"), device="cpu")


def params(**given):
    return SamplingParams(**{"seed": 1, "ignore_eos": True, "max_tokens": 40, **given})


def test_pieces_join_to_the_text_that_generate_gives(llm):
    answer = Answer(llm.engine, llm.tokenizer.encode("Once"), params())
    pieces = list(answer)
    expected = llm.generate("Once", params())[0].outputs[0]
    assert answer.output == expected
    assert "".join(pieces) == expected.text
    assert answer.ending() == "cut off at --max-tokens 40"
    assert re.fullmatch(r"4 prompt tokens; 40 tokens, [\d.]+ tokens/s, first after [\d.]+ s; cut off at --max-tokens 40",
                        answer.summary())


def test_ctrl_c_ends_the_answer_after_the_step_in_progress_and_frees_its_blocks(llm):
    handler = signal.getsignal(signal.SIGINT)
    answer = Answer(llm.engine, llm.tokenizer.encode("Once"), params())
    for count, _ in enumerate(answer, start=1):
        if count == 3:
            signal.raise_signal(signal.SIGINT)
    assert answer.interrupted and answer.ending() == "interrupted"
    assert len(answer.output.token_ids) == 3
    assert llm.engine.pool.usage == 0 and not llm.engine.has_work
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_ctrl_c_raises_but_never_within_a_step(llm, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        for _ in Answer(llm.engine, llm.tokenizer.encode("Once"), params()):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
    assert not llm.engine.has_work

    runner = llm.engine.loop.runner

    def impatient(batch, forward=runner.forward):
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        return forward(batch)

    monkeypatch.setattr(runner, "forward", impatient)
    answer = Answer(llm.engine, llm.tokenizer.encode("Once"), params())
    list(answer)
    assert answer.interrupted and len(answer.output.token_ids) == 1


def test_the_end_of_the_context_and_a_stop_string_are_told_apart(llm):
    ids = llm.tokenizer.encode("x" * (llm.engine.max_model_len - 5))
    answer = Answer(llm.engine, ids, params())
    text = "".join(answer)
    assert len(answer.output.token_ids) == 5
    assert answer.ending() == f"cut off: the context of {llm.engine.max_model_len} tokens is full"

    stop = next(character for character in text[1:] if character.isascii())
    answer = Answer(llm.engine, ids, params(stop=(stop,)))
    assert "".join(answer) == text[: text.index(stop)]
    assert answer.ending() == f"stopped before {stop!r}"


def test_logits_that_are_not_finite_are_an_error(llm, monkeypatch):
    runner = llm.engine.loop.runner

    def corrupting(batch, forward=runner.forward):
        result = forward(batch)
        result.samples.valid[:] = False
        return result

    monkeypatch.setattr(runner, "forward", corrupting)
    with pytest.raises(VtliteError, match="not finite"):
        list(Answer(llm.engine, llm.tokenizer.encode("Once"), params()))
    assert not llm.engine.has_work
