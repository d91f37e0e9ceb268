"""AsyncLLM: many coroutines, one engine thread; whoever leaves frees what it held."""

import asyncio

import pytest

from vtlite import AsyncLLM, SamplingParams
from vtlite.config import EngineConfig
from vtlite.engine.async_llm import EngineDeadError
from vtlite.engine.engine import Engine
from vtlite.errors import RequestError

SECONDS = 240           # after which something that should happen will not


@pytest.fixture
def llm(tiny_checkpoint):
    llm = AsyncLLM(Engine(tiny_checkpoint("qwen3"), EngineConfig(device="cpu", num_blocks=60, block_size=4)))
    yield llm
    llm.shutdown()


async def ids_of(llm, name, prompt, params):
    return [(d.index, t) async for d in llm.generate(name, prompt, params) for t in d.token_ids]


def test_concurrent_requests_get_the_answers_they_get_alone(llm):
    jobs = {f"r{i}": ([i + 1] * (i + 1), SamplingParams(temperature=1, seed=i, n=1 + i % 2, max_tokens=6, ignore_eos=True))
            for i in range(8)}

    async def together():
        return await asyncio.gather(*(ids_of(llm, name, *job) for name, job in jobs.items()))

    async def one_by_one():
        return [await ids_of(llm, name, *job) for name, job in jobs.items()]

    assert [sorted(ids) for ids in asyncio.run(together())] == [sorted(ids) for ids in asyncio.run(one_by_one())]


def test_leaving_early_frees_the_blocks(llm):
    pool = llm.engine.pool

    async def leave():
        stream = llm.generate("r", [1, 2, 3], SamplingParams(max_tokens=200, ignore_eos=True))
        await anext(stream)
        await stream.aclose()
        while pool.num_free < pool.num_usable:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(leave(), SECONDS))
    assert not llm.engine.has_work


def test_a_bad_request_is_refused_in_the_callers_coroutine(llm):
    with pytest.raises(RequestError, match="prompt is empty"):
        asyncio.run(ids_of(llm, "r", [], SamplingParams()))


def test_an_engine_that_dies_tells_everyone(llm, monkeypatch):
    def broken():
        raise RuntimeError("planted")
    monkeypatch.setattr(llm.engine, "step", broken)
    for _ in range(2):                              # the one who waits, and the one who comes later
        with pytest.raises(EngineDeadError):
            asyncio.run(asyncio.wait_for(ids_of(llm, "r", [1], SamplingParams()), SECONDS))
    assert isinstance(llm.error, RuntimeError)
