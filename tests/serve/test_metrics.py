"""vtlite/serve/metrics.py: vLLM's names with the right numbers."""

import pytest

from tests.serve.conftest import running, wait_until
from vtlite.serve.metrics import _one_two_five

BODY = {"prompt": "abcd", "max_tokens": 5, "ignore_eos": True, "temperature": 0}


def test_a_scrape_counts_what_happened(checkpoint):
    with running(checkpoint, block_size=4) as live:
        live.http.post("/v1/completions", json=BODY)
        live.http.post("/v1/completions", json=BODY | {"prompt": "abcdefghi", "n": 2, "temperature": 1.0, "stream": True})
        expected = {
            "prompt_tokens_total": 22, "generation_tokens_total": 15, "prefix_cache_queries_total": 22,
            "prefix_cache_hits_total": 4 + 8,                   # of the first prompt, and of the other answer's
            "num_preemptions_total": 0, "corrupted_requests_total": 0, "kv_cache_usage_perc": 0,
            "num_requests_running": 0, "num_requests_waiting": 0, "e2e_request_latency_seconds_count": 3,
            "time_to_first_token_seconds_count": 3, "inter_token_latency_seconds_count": 12,
            "request_prompt_tokens_sum": 22, "request_generation_tokens_sum": 15}
        assert {name: live.metric(f"vllm:{name}", model_name="tiny", engine="0") for name in expected} == expected
        assert live.metric("vllm:request_success_total", finished_reason="length") == 3
        assert live.metric("vtlite:prefix_cache_lookups_total", reason="hit") == 2
        assert live.metric("vtlite:prefix_cache_lookups_total", reason="no_blocks") + live.metric(
            "vtlite:prefix_cache_lookups_total", reason="short") == 1
        assert live.metric("process_resident_memory_bytes") > 0


def test_gauges_follow_running_and_waiting_requests(checkpoint):
    with running(checkpoint, max_num_seqs=2, num_blocks=41) as live:
        live.gate.close()
        body = BODY | {"prompt": ["a", "b", "c"], "max_tokens": 100, "stream": True}
        with live.http.stream("POST", "/v1/completions", json=body):
            wait_until(lambda: len(live.engine.loop.scheduler.waiting) + live.num_inbox == 3)
            live.gate.let(2)                # after the first step, all are with the engine; in the second, two of them run
            wait_until(lambda: (live.metric("vllm:num_requests_running"), live.metric("vllm:num_requests_waiting")) == (2, 1))
            assert live.metric("vllm:kv_cache_usage_perc") == pytest.approx(2 / 40)
        wait_until(lambda: live.metric("vllm:request_success_total", finished_reason="abort") == 3)
        live.gate.open()
        wait_until(lambda: live.idle)
        gauges = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        assert [live.metric(f"vllm:{name}") for name in gauges] == [0, 0, 0]


def test_openmetrics_is_spoken_to_those_who_ask(live):
    assert live.http.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
    response = live.http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def test_bucket_bounds_go_1_2_5_up_to_the_models_length():
    assert _one_two_five(8192) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
