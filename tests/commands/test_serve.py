"""`vtlite serve` hands the server what was asked for, and finds out early where it cannot listen."""

import socket
import sys
from types import SimpleNamespace

import pytest

from vtlite.cli import main


@pytest.fixture
def served(monkeypatch):
    """Instead of a server, a record of what it was given."""
    calls = []
    server = SimpleNamespace(serve=lambda *arguments: calls.append(arguments))
    monkeypatch.setitem(sys.modules, "vtlite.serve.run", server)
    return calls


def test_options_reach_the_engine_and_the_server(tiny_checkpoint, served):
    assert main(["serve", str(tiny_checkpoint("qwen3")), "--device", "reference", "--port", "0", "--max-model-len", "128",
                 "--max-num-seqs", "3", "--max-num-batched-tokens", "64", "--block-size", "8", "--kv-cache-bytes",
                 "1.5MiB", "--no-enable-prefix-caching", "--scheduling-policy", "priority", "--api-key", "secret",
                 "--served-model-name", "a", "b"]) == 0
    [(engine, host, port, names, api_key)] = served
    assert (host, port, names, api_key) == ("127.0.0.1", 0, ["a", "b"], "secret")
    config = engine.config
    assert (config.max_model_len, config.max_num_seqs, config.max_num_batched_tokens) == (128, 3, 64)
    assert (config.block_size, config.kv_cache_bytes, config.enable_prefix_caching) == (8, 3 << 19, False)
    assert (config.device, config.scheduling_policy) == ("reference", "priority")


def test_left_out_options_are_the_engine_s_defaults_and_the_model_s_name(tiny_checkpoint, served, monkeypatch):
    monkeypatch.setenv("VTLITE_API_KEY", "from the environment")
    model = str(tiny_checkpoint("qwen3"))
    assert main(["serve", model, "--device", "reference", "--port", "0"]) == 0
    [(engine, _, _, names, api_key)] = served
    assert (names, api_key) == ([model], "from the environment")
    assert engine.config == type(engine.config)(device="reference")


def test_listening_beyond_this_machine_without_a_key_is_remarked(tiny_checkpoint, served, monkeypatch, capsys):
    monkeypatch.setattr(socket.socket, "bind", lambda *arguments: None)        # tests listen nowhere
    assert main(["serve", str(tiny_checkpoint("qwen3")), "--device", "reference", "--host", "0.0.0.0"]) == 0
    assert "without --api-key" in capsys.readouterr().err


def test_a_place_where_nothing_can_listen_is_a_sentence_before_the_model_is_loaded(served, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", "no such model", "--port", str(port)]) == 2
    assert (f"nothing can listen on 127.0.0.1 port {port} (Address already in use); choose another with --port"
            in capsys.readouterr().err)
    assert main(["serve", "no such model", "--port", "65536"]) == 2
    assert "port should be in [0, 65535], found 65536" in capsys.readouterr().err
    assert main(["serve", "no such model", "--host", "not a host", "--port", "0"]) == 2
    assert "host 'not a host' is not an address of this machine" in capsys.readouterr().err
    assert served == []
