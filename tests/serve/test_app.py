"""vtlite/serve/app.py: the routes beside generation, and who may use them."""

import openai
import pytest

from tests.serve.conftest import MAX_MODEL_LEN, NAMES, running
from vtlite import __version__


def error_of(response, status: int) -> dict:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"} and error["code"] == status and error["message"]
    return error


def test_the_models_are_listed_under_every_name(live, client):
    assert [model.id for model in client.models.list()] == NAMES
    for name in NAMES:                                    # one of them with a slash
        card = client.models.retrieve(name)
        assert (card.id, card.root, card.max_model_len) == (name, NAMES[0], MAX_MODEL_LEN)


def test_an_unknown_model_is_not_found(client):
    for call in (lambda: client.models.retrieve("gpt-4"), lambda: client.completions.create(model="gpt-4", prompt="x"),
                 lambda: client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "x"}])):
        with pytest.raises(openai.NotFoundError, match="gpt-4.*tiny"):
            call()


def test_every_name_and_no_name_is_the_same_model(live):
    body = {"prompt": "x", "max_tokens": 3, "temperature": 0}
    answers = [live.http.post("/v1/completions", json=body | model).json()
               for model in ({}, {"model": None}, *({"model": name} for name in NAMES))]
    assert [answer["model"] for answer in answers] == [NAMES[0], NAMES[0], *NAMES]
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1


def test_health_and_version(live):
    assert live.http.get("/health").status_code == live.http.get("/ping").status_code == 200
    assert live.http.get("/version").json() == {"version": __version__}


def test_wrong_paths_and_methods_have_openais_error_shape(live):
    error_of(live.http.get("/v1/nothing"), 404)
    response = live.http.get("/v1/completions")
    error_of(response, 405)
    assert response.headers["allow"] == "POST"


def test_a_request_id_is_used_and_returned(live):
    body = {"prompt": "x", "max_tokens": 2}
    response = live.http.post("/v1/completions", json=body, headers={"X-Request-Id": "mine-7"})
    assert response.json()["id"] == "cmpl-mine-7" and response.headers["x-request-id"] == "mine-7"
    with live.http.stream("POST", "/v1/completions", json=body | {"stream": True, "request_id": "yours"}) as response:
        assert response.headers["x-request-id"] == "yours" and '"cmpl-yours"' in next(response.iter_lines())
    for unusable in ("", "x" * 300, "line\nbreak"):
        response = live.http.post("/v1/completions", json=body | {"request_id": unusable})
        assert response.json()["id"] == f"cmpl-{response.headers['x-request-id']}" and len(response.json()["id"]) == 37


def test_two_requests_may_have_the_same_id(live):
    bodies = [{"prompt": prompt, "max_tokens": 2, "request_id": "same", "temperature": 0} for prompt in ("a", "b")]
    alone = [live.http.post("/v1/completions", json=body).json()["choices"] for body in bodies]
    live.gate.close()
    with live.http.stream("POST", "/v1/completions", json=bodies[0] | {"stream": True}) as first:
        with live.http.stream("POST", "/v1/completions", json=bodies[1] | {"stream": True}) as second:
            live.gate.open()
            texts = ["".join(line for line in response.iter_lines()) for response in (first, second)]
    assert all('"finish_reason":"length"' in text for text in texts) and alone[0] != alone[1]


def test_text_becomes_tokens_and_back(live):
    tokens = live.http.post("/tokenize", json={"prompt": "Héllo", "return_token_strs": True}).json()
    assert tokens["count"] == 6 == len(tokens["tokens"]) and tokens["max_model_len"] == MAX_MODEL_LEN
    assert tokens["token_strs"] == ["H", "\ufffd", "\ufffd", "l", "l", "o"]
    assert live.http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": "Héllo"}
    chat = live.http.post("/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert live.http.post("/detokenize", json={"tokens": chat["tokens"]}).json() == {"prompt": "<user>Hi</>\n<assistant>"}


@pytest.mark.parametrize("path, body, word", [
    ("/tokenize", {}, "prompt or messages"), ("/tokenize", {"prompt": "x", "messages": []}, "prompt or messages"),
    ("/tokenize", {"prompt": 5}, "prompt"), ("/tokenize", {"messages": []}, "messages"),
    ("/tokenize", {"prompt": "x" * 10**6}, "prompt"), ("/tokenize", {"prompt": "x", "model": "gpt-4"}, "gpt-4"),
    ("/detokenize", {}, "tokens"), ("/detokenize", {"tokens": "x"}, "tokens"), ("/detokenize", {"tokens": [0.5]}, "tokens"),
    ("/detokenize", {"tokens": [-1]}, "-1"), ("/detokenize", {"tokens": [0, 10**6]}, "1000000"),
])
def test_bad_texts_and_tokens_are_refused(live, path, body, word):
    response = live.http.post(path, json=body)
    assert 400 <= response.status_code < 500 and word in error_of(response, response.status_code)["message"]


def test_an_api_key_guards_all_but_the_open_paths(checkpoint):
    with running(checkpoint, api_key="sécret") as guarded:
        get = guarded.http.get
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "sécret".encode()}):
            error_of(get("/v1/models", headers=headers), 401)
            error_of(guarded.http.post("/tokenize", json={"prompt": "x"}, headers=headers), 401)
        assert get("/v1/models", headers={"Authorization": "Bearer sécret".encode()}).status_code == 200
        assert all(get(path).status_code == 200 for path in ("/health", "/ping", "/version", "/metrics"))
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong").models.list()
