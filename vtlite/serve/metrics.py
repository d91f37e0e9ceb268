"""Prometheus metrics under vLLM's names and buckets, so that its dashboards work.

What the engine counts is read when scraped; times are taken where deltas pass on their way to the client.
"""

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from vtlite.engine.async_llm import AsyncLLM
from vtlite.engine.outputs import Delta
from vtlite.engine.scheduler import LOOKUP_REASONS

LABELS = ("model_name", "engine")
FIRST_TOKEN_SECONDS = (.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640,
                       2560)
TOKEN_SECONDS = (.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST_SECONDS = (.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, llm: AsyncLLM, model_name: str):
        self.registry = CollectorRegistry()
        values = (model_name, "0")
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.registry.register(_EngineState(llm, values))

        def histogram(name: str, text: str, buckets) -> Histogram:
            return Histogram(f"vllm:{name}", text, LABELS, buckets=buckets, registry=self.registry).labels(*values)

        tokens = _one_two_five(llm.engine.max_model_len)
        self._first_token = histogram("time_to_first_token_seconds", "From arrival to an answer's first token.",
                                      FIRST_TOKEN_SECONDS)
        self._between_tokens = histogram("inter_token_latency_seconds", "Between two tokens of an answer.",
                                         TOKEN_SECONDS)
        self._whole = histogram("e2e_request_latency_seconds", "From arrival to the end of an answer.", REQUEST_SECONDS)
        self._prompt = histogram("request_prompt_tokens", "Prompt tokens of a finished answer.", tokens)
        self._generation = histogram("request_generation_tokens", "Generated tokens of a finished answer.", tokens)
        finished = Counter("vllm:request_success", "Answers that ended, by reason.", (*LABELS, "finished_reason"),
                           registry=self.registry)
        self._finished = {reason: finished.labels(*values, reason) for reason in ("stop", "length", "abort", "error")}

    async def watch(self, deltas: AsyncGenerator[Delta, None], prompt_len: int, n: int) -> AsyncGenerator[Delta, None]:
        """Pass on the deltas of one prompt's `n` answers and observe them. Closed early, they count as aborted."""
        arrival = time.perf_counter()
        last: dict[int, float] = {}                     # answer -> when its last token came
        counts = [0] * n
        unfinished = n
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    now = time.perf_counter()
                    if delta.index in last:
                        self._between_tokens.observe(now - last[delta.index])
                    else:
                        self._first_token.observe(now - arrival)
                    last[delta.index] = now
                    counts[delta.index] += len(delta.token_ids)
                    if delta.finish_reason is not None:
                        unfinished -= 1
                        self._finished[delta.finish_reason].inc()
                        self._whole.observe(now - arrival)
                        self._prompt.observe(prompt_len)
                        self._generation.observe(counts[delta.index])
                    yield delta
        finally:
            self._finished["abort"].inc(unfinished)


class _EngineState(Collector):
    """Reads the engine's gauges and totals; each is one attribute, so no lock is needed."""

    def __init__(self, llm: AsyncLLM, values: tuple[str, str]):
        self._llm, self._values = llm, values

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        engine = self._llm.engine
        scheduler, pool, counters = engine.loop.scheduler, engine.pool, engine.loop.counters
        for kind, name, text, value in (
            (GaugeMetricFamily, "num_requests_running", "Answers in the running batch.", len(scheduler.running)),
            (GaugeMetricFamily, "num_requests_waiting", "Answers that wait to be run.", len(scheduler.waiting)),
            (GaugeMetricFamily, "kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", pool.usage),
            (CounterMetricFamily, "prefix_cache_queries", "Prompt tokens looked up in the prefix cache.",
             pool.num_queried_tokens),
            (CounterMetricFamily, "prefix_cache_hits", "Prompt tokens found in the prefix cache.", pool.num_hit_tokens),
            (CounterMetricFamily, "num_preemptions", "Times an answer gave up its KV blocks.",
             scheduler.num_preemptions),
            (CounterMetricFamily, "prompt_tokens", "Prompt tokens computed or found.", counters.prompt_tokens),
            (CounterMetricFamily, "generation_tokens", "Tokens generated.", counters.generation_tokens),
            (CounterMetricFamily, "corrupted_requests", "Answers ended by logits that were not finite.",
             counters.corrupted_requests),
        ):
            family = kind(f"vllm:{name}", text, labels=LABELS)
            family.add_metric(self._values, value)
            yield family
        yield GaugeMetricFamily("vtlite:cached_states", "Recurrent states kept for prompts seen before.",
                                len(scheduler.states or ()))
        lookups = CounterMetricFamily("vtlite:prefix_cache_lookups", "Requests by what the prefix cache had for them.",
                                      labels=(*LABELS, "reason"))
        for reason in LOOKUP_REASONS:
            lookups.add_metric((*self._values, reason), scheduler.prefix_lookups[reason])
        yield lookups


def _one_two_five(most: int) -> list[int]:
    """1 2 5 10 20 50 ... up to `most`."""
    return [digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5) if digit * 10**power <= most]
