"""A live server on loopback with a tiny random model, and clients of it."""

import logging
import math
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from tests.tiny_dense import DENSE
from vtlite.config import EngineConfig
from vtlite.engine.async_llm import AsyncLLM
from vtlite.engine.engine import Engine
from vtlite.serve.run import Server

NAMES = ["tiny", "org/also-tiny"]
MAX_MODEL_LEN = 128
MAX_NUM_SEQS = 48
SECONDS = 240           # after which something that should happen will not: far beyond what the slowest machine needs
TEMPLATE = ("{% if tools %}tools:{{ tools | tojson }}\n{% endif %}"
            "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}{{ enable_thinking }}{{ reasoning_effort }}")


class Gate:
    """Where the engine stops before each step until it may go on."""

    def __init__(self):
        self._steps, self._changed = math.inf, threading.Condition()
        self.holds = False                              # the engine stands here

    def open(self) -> None:
        self._set(math.inf)

    def close(self) -> None:
        self._set(0)

    def let(self, steps: int) -> None:
        """Let this many steps pass, then close again."""
        self._set(steps)

    def pass_one(self) -> None:
        with self._changed:
            self.holds = self._steps <= 0
            self._changed.wait_for(lambda: self._steps > 0)
            self.holds = False
            self._steps -= 1

    def _set(self, steps: float) -> None:
        with self._changed:
            self._steps = steps
            self._changed.notify_all()


class LiveServer:
    """A server in a thread of this process, its engine at hand and stepping as its `gate` lets it."""

    def __init__(self, directory, **options):
        options = {"device": "cpu", "max_model_len": MAX_MODEL_LEN, "max_num_seqs": MAX_NUM_SEQS,
                   "num_blocks": 400} | options
        api_key = options.pop("api_key", None)
        self.engine = Engine(directory, EngineConfig(**options))
        self.gate = Gate()
        step = self.engine.step

        def gated_step():
            self.gate.pass_one()
            return step()

        self.engine.step = gated_step
        self.llm = AsyncLLM(self.engine)
        self.server = Server(self.llm, NAMES, api_key)
        self.server.config.timeout_graceful_shutdown = SECONDS          # a slow machine must not cut answers short
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})
        self.thread.start()
        self.http = httpx.Client(base_url=self.url, timeout=SECONDS)
        wait_until(lambda: self.server.started)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of /metrics."""
        for family in text_string_to_metric_families(self.http.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        raise KeyError(name)

    @property
    def num_inbox(self) -> int:
        """Commands that the engine thread has not taken yet."""
        return self.llm._inbox.qsize()

    @property
    def idle(self) -> bool:
        """Nothing is left of any request: not in the server, not on the way to the engine, not in the engine. Asked in
        the order in which a request moves, so that none slips through between two questions."""
        return not (self.server.server_state.tasks or self.llm._streams or self.num_inbox or self.engine.has_work
                    or self.engine.pool.usage)

    def all_accepted(self) -> None:
        """Return when every connection made so far is known to the server, which takes them in turn."""
        httpx.get(f"{self.url}/health", timeout=SECONDS)

    def stop(self) -> None:
        self.gate.open()
        self.server.should_exit = True
        self.thread.join(timeout=SECONDS)
        assert not self.thread.is_alive()
        self.http.close()


def wait_until(condition) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def running(directory, **options):
    live = LiveServer(directory, **options)
    try:
        yield live
    finally:
        live.stop()


@pytest.fixture
def logged_errors():
    """What servers, uvicorn and engines log as errors during the test."""
    records = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = records.append
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "vtlite")]
    for logger in loggers:
        logger.addHandler(handler)
    yield records
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    directory = DENSE.build("qwen3", tmp_path_factory.mktemp("serve"))
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


@pytest.fixture(scope="session")
def live(checkpoint):
    with running(checkpoint) as server:
        yield server


@pytest.fixture(scope="session")
def client(live):
    with OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as openai_client:
        yield openai_client


@pytest.fixture(scope="session")
def letters(live):
    """Ids of the tokens a..z and space: answers made of them are readable and of one character a token."""
    return [live.engine.tokenizer.encode(c)[0] for c in "abcdefghijklmnopqrstuvwxyz "]
