"""vtlite/serve/run.py: the greeting, the end, and an engine that dies."""

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import SECONDS, running, wait_until
from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine
from vtlite.errors import ConfigError
from vtlite.serve.run import serve

LONG = {"prompt": "Once", "max_tokens": 100, "ignore_eos": True}
PROGRAM = """
import sys
from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine
from vtlite.serve.run import serve
serve(Engine(sys.argv[1], EngineConfig(device="reference", num_blocks=40)), "127.0.0.1", 0, ["tiny"])
print("after", flush=True)
"""


def last_events(response) -> list[str]:
    return [line for line in response.iter_lines() if line][-2:]


def test_serve_greets_with_a_command_that_works_and_ends_on_ctrl_c(checkpoint):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(checkpoint)], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])
    try:
        assert "tiny is served at http://127.0.0.1:" in process.stderr.readline()
        command = process.stderr.readline()
        assert command.startswith("  curl http://127.0.0.1:") and '"model": "tiny"' in command
        url = command.split()[1]
        answer = httpx.post(url, json=json.loads(command[command.index("-d '") + 4 : -2]) | {"max_tokens": 2}, timeout=SECONDS)
        assert answer.json()["usage"]["completion_tokens"] <= 2
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "after\n", "")


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "vtlite-engine"]


def test_an_address_in_use_is_a_sentence_and_leaves_no_thread(checkpoint):
    before = engine_threads()
    engine = Engine(checkpoint, EngineConfig(device="reference", num_blocks=40))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port} .*--port"):
            serve(engine, "127.0.0.1", port, ["tiny"])
    assert engine_threads() == before


def test_a_shutdown_tells_running_requests_and_waits_for_none(checkpoint, logged_errors):
    statuses = []
    with running(checkpoint) as live:
        whole = threading.Thread(target=lambda: statuses.append(live.http.post("/v1/completions", json=LONG).status_code))
        live.gate.let(1)
        with live.http.stream("POST", "/v1/completions", json=LONG | {"stream": True, "return_token_ids": True}) as response:
            lines = response.iter_lines()
            next(lines)
            wait_until(lambda: live.gate.holds)
            whole.start()
            wait_until(lambda: live.num_inbox == 1)                        # the other request
            live.server.should_exit = True
            wait_until(lambda: live.num_inbox == 2)                        # the order to stop
            live.gate.open()
            *_, error, done = (line for line in lines if line)
        whole.join()
    assert "shut down" in json.loads(error[6:])["error"]["message"] and done == "data: [DONE]"
    assert statuses == [503] and not logged_errors


def test_an_engine_that_dies_fails_every_request_and_the_health_check(checkpoint):
    def broken(*_):
        raise MemoryError("no more memory, secretly")

    with running(checkpoint) as live:
        live.gate.close()
        with live.http.stream("POST", "/v1/completions", json=LONG | {"stream": True}) as response:
            live.engine.loop.runner.forward = broken
            live.gate.open()
            error, done = last_events(response)
        told = json.loads(error[6:])["error"]
        assert told["code"] == 503 and "internal error" in told["message"] and "secretly" not in told["message"]
        assert done == "data: [DONE]"
        wait_until(lambda: live.llm.error is not None)
        assert live.http.get("/health").status_code == 503
        response = live.http.post("/v1/completions", json=LONG)
        assert response.status_code == 503 and response.json()["error"]["type"] == "ServiceUnavailableError"


def test_an_answer_with_broken_logits_fails_alone(checkpoint):
    with running(checkpoint) as live:
        forward = live.engine.loop.runner.forward

        def corrupting(batch):
            result = forward(batch)
            result.samples.valid[[request.prompt_len == 7 for request in batch.sampled]] = False
            return result

        live.engine.loop.runner.forward = corrupting
        bad = {"prompt": "seven..", "max_tokens": 3}
        response = live.http.post("/v1/completions", json=bad)
        assert response.status_code == 500 and "finite" in response.json()["error"]["message"]
        error, done = live.http.post("/v1/completions", json=bad | {"stream": True}).text.split("\n\n")[-3:-1]
        assert json.loads(error[6:])["error"]["code"] == 500 and done == "data: [DONE]"
        assert live.http.post("/v1/completions", json=LONG).status_code == 200
        assert live.metric("vllm:corrupted_requests_total") == 2
        wait_until(lambda: live.idle)
