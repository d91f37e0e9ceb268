"""vtlite/serve/stream.py: framing of events, and clients that go away."""

import asyncio
import json
import shutil
import socket
import subprocess

import pytest
from starlette.requests import ClientDisconnect

from tests.serve.conftest import SECONDS, wait_until
from vtlite.serve.stream import while_connected

BODY = {"prompt": "Once", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
LONG = BODY | {"max_tokens": 120, "return_token_ids": True}        # an event for every token, text or not


def test_events_are_data_lines_that_end_with_done(live):
    response = live.http.post("/v1/completions", json=BODY | {"stream": True, "return_token_ids": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    for event in events:
        prefix, data = event[:6], event[6:]
        assert prefix == "data: " and "\n" not in data and json.loads(data)["object"] == "text_completion"
    assert len(events) == 6 and len({json.loads(event[6:])["id"] for event in events}) == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed; the test above looks at the same bytes")
def test_curl_reads_a_stream(live):
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "stream": True})
    command = ["curl", "-sN", f"{live.url}/v1/chat/completions", "-H", "Content-Type: application/json", "-d", body]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout.split("\n")
    assert lines[-3:] == ["data: [DONE]", "", ""]
    assert all(line.startswith("data: ") for line in lines[:-1:2]) and not any(lines[1::2])


def connect(live, body: dict, path: str = "/v1/completions", send: float = 1.0) -> socket.socket:
    """A raw connection that has sent this share of a request."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", live.port))
    connection.sendall((head.encode() + data)[: int((len(head) + len(data)) * send)])
    return connection


def num_requests(live) -> float:
    return live.metric("vllm:num_requests_running") + live.metric("vllm:num_requests_waiting")


def num_generated(live) -> float:
    return live.metric("vllm:generation_tokens_total")


def num_aborted(live) -> float:
    return live.metric("vllm:request_success_total", finished_reason="abort")


@pytest.fixture
def leaves_nothing(live, logged_errors):
    """After the test: no request, no block in use, no logged error, and the usual answer to the usual request."""
    before = live.http.post("/v1/completions", json=BODY).json()["choices"]
    wait_until(lambda: live.idle)
    yield
    live.gate.open()
    live.all_accepted()
    wait_until(lambda: live.idle)
    assert not logged_errors
    assert live.http.post("/v1/completions", json=BODY).json()["choices"] == before


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("options", [{}, {"n": 3, "seed": 1}, {"prompt": ["a", "b", "c"]}])
def test_a_client_that_leaves_before_the_first_token_costs_one_step_at_most(live, leaves_nothing, stream, options):
    aborted, generated = num_aborted(live), num_generated(live)
    num_answers = options.get("n", 1) * len(options.get("prompt", "x"))
    live.gate.close()
    connection = connect(live, LONG | {"temperature": 1.0} | options | {"stream": stream})
    wait_until(lambda: num_requests(live) > 0)
    connection.close()
    wait_until(lambda: num_aborted(live) == aborted + num_answers)
    live.gate.open()
    wait_until(lambda: live.idle)
    assert num_generated(live) <= generated + num_answers


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_after_some_tokens_costs_one_step_at_most(live, leaves_nothing, stream):
    aborted, generated = num_aborted(live), num_generated(live)
    live.gate.let(3)
    connection, received = connect(live, LONG | {"stream": stream}), b""
    wait_until(lambda: num_generated(live) == generated + 3)
    while stream and received.count(b"data: ") < 3:
        received += connection.recv(4096)
    connection.close()
    wait_until(lambda: num_aborted(live) == aborted + 1)
    live.gate.open()
    wait_until(lambda: live.idle)
    assert num_generated(live) <= generated + 4


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_client_that_leaves_amid_its_request_asks_for_nothing(live, leaves_nothing, share):
    prompts = live.metric("vllm:prompt_tokens_total")
    connect(live, LONG, send=share).close()
    live.all_accepted()
    wait_until(lambda: live.idle)
    assert live.metric("vllm:prompt_tokens_total") == prompts


def test_a_client_that_leaves_after_the_last_event_is_no_abort(live, leaves_nothing):
    aborted = num_aborted(live)
    with live.http.stream("POST", "/v1/completions", json=BODY | {"stream": True}) as response:
        for line in response.iter_lines():
            if "[DONE]" in line:
                break
    wait_until(lambda: live.idle)
    assert num_aborted(live) == aborted


def test_others_get_their_answers_while_clients_leave(live, leaves_nothing):
    expected = live.http.post("/v1/completions", json=LONG).json()["choices"]
    with live.http.stream("POST", "/v1/completions", json=LONG | {"stream": True}) as response:
        for i in range(4):
            connect(live, LONG | {"stream": i % 2 == 0, "prompt": f"Other {i}"}).close()
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    assert "".join(event["choices"][0]["text"] for event in events) == expected[0]["text"]


class Client:
    """An ASGI `receive` whose client leaves when told to."""

    def __init__(self):
        self.gone = asyncio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}


def test_work_is_cancelled_and_cleaned_up_before_the_disconnect_is_reported():
    async def main():
        client, cleaned = Client(), []

        async def work():
            client.gone.set()
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0)
                cleaned.append(True)

        with pytest.raises(ClientDisconnect):
            await while_connected(client.receive, work())
        assert cleaned

    asyncio.run(main())


def test_work_that_ends_first_gives_its_result_or_its_error():
    async def main():
        async def work(value):
            await asyncio.sleep(0)
            return 1 / value

        assert await while_connected(Client().receive, work(2)) == 0.5
        with pytest.raises(ZeroDivisionError):
            await while_connected(Client().receive, work(0))

    asyncio.run(main())
