"""One step ahead, every request gets the answer of the synchronous loop; and when a step is ahead."""

from collections import deque
from dataclasses import fields
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.mixes import answer, collect, everything_is_free
from vtlite.engine.ahead_loop import AheadLoop
from vtlite.engine.batch import Batch, Ragged, SamplingBatch, build, following, with_prompt_rows
from vtlite.engine.cache import BlockPool
from vtlite.engine.detokenizer import Detokenizer
from vtlite.engine.device_runner import DeviceRunner, Launched
from vtlite.engine.moves import Caches
from vtlite.engine.request import Request, draw_seed
from vtlite.engine.runner import StepResult
from vtlite.engine.sampling_params import SamplingParams
from vtlite.engine.scheduler import Scheduler
from vtlite.engine.sync_loop import SyncLoop
from vtlite.reference import Samples

LETTERS = "<abcdefghijk"                       # token i is the i-th letter
EOS = 0
LONGEST = 40                                   # of a prompt and its answer
PREFIX = [int(c) for c in np.random.default_rng(0).integers(1, len(LETTERS), 24)]
SCORES = np.random.default_rng(1).permuted(np.tile(np.arange(len(LETTERS), dtype=np.float32), (1 << 12, 1)), axis=1)


class Letters:
    """The tokenizer."""

    def decode(self, ids, skip_special_tokens=True) -> str:
        return "".join(map(self.token_text, ids))

    def token_text(self, i: int) -> str:
        return LETTERS[i]


class HashRunner(Caches):
    """A DeviceRunner whose model draws by a hash: of the tokens and positions that the caches hold of a sequence, of its
    state if there is one, and of all that the sampler is told of the row. So a wrong slot, block, state or parameter shows.

    A step is done when launched, but tells nothing before it is read. `trace` has an L for each launch, an R for each read.
    """

    _refer_to_drawn, is_decode, _enforce_eager = DeviceRunner._refer_to_drawn, DeviceRunner.is_decode, False

    def __init__(self, num_blocks: int, block_size: int, num_slots: int, has_state: bool):
        super().__init__()
        self.block_size, self.trace = block_size, ""
        self._kv = np.full((num_blocks, block_size), -1)
        self._states, self._has_state = np.full(num_slots, -1), has_state
        self._drawn, self._drawn_rows, self._in_flight = np.zeros(0, np.int64), {}, deque()

    def _kv_of(self, blocks):
        return self._kv[blocks]

    def _restore_kv(self, blocks, kept):
        self._kv[blocks] = kept

    def _state_of(self, slot):
        return self._states[slot]

    def _restore_state(self, slot, kept):
        self._states[slot] = kept

    def _reset_state(self, slot):
        self._states[slot] = 0

    def _copy_state(self, source, target):
        self._states[target] = self._states[source]

    def forward(self, batch: Batch) -> StepResult:
        return self.read(self.launch(batch))

    def launch(self, batch: Batch) -> Launched:
        assert len(self._in_flight) < 2, "more than one step ahead"
        self._refer_to_drawn(batch)
        input_ids, drawn = batch.input_ids.copy(), batch.input_ids < 0
        input_ids[drawn] = self._drawn[-1 - input_ids[drawn]]
        hashes = self._model(batch, input_ids)[batch.logits_indices]
        samples = draw(hashes, with_prompt_rows(batch))
        self._drawn = samples.token_ids
        self.trace += "L"
        step = Launched(batch, None, samples, None)
        self._in_flight.append(step)
        return step

    def _model(self, batch: Batch, input_ids: np.ndarray) -> np.ndarray:
        """input_ids [T] enter the caches -> [T] hashes of what the sequence of each has there up to it."""
        assert batch.block_table[:, 0].all() and batch.state_slots.all(), "block and slot 0 are nobody's"
        self._kv.reshape(-1)[batch.slot_mapping] = input_ids * LONGEST + batch.positions
        hashes = np.zeros(len(input_ids), np.int64)
        for i, slot in enumerate(batch.state_slots):
            past = self._kv[batch.block_table[i]].reshape(-1)
            for t in range(*batch.query_start_loc[i : i + 2]):
                if self._has_state:
                    self._states[slot] = crc32(input_ids[t], self._states[slot])
                hashes[t] = crc32(past[: batch.positions[t] + 1], self._states[slot] if self._has_state else 0)
            assert batch.seq_lens[i] == batch.positions[t] + 1
        return hashes

    def read(self, step: Launched) -> StepResult:
        assert step is self._in_flight.popleft(), "read once each, in the order of launches"
        self.trace += "R"
        batch, samples = step.batch, step.results
        prompt = tuple(array[batch.prompt_indices] for array in samples[2:]) if len(batch.prompt_indices) else None
        return StepResult(Samples(*(array[batch.sample_indices] for array in samples)), prompt)


def draw(hashes: np.ndarray, sampling: SamplingBatch) -> Samples:
    """Of each row the allowed id of the highest score; now and then a row is not valid."""
    columns = [getattr(sampling, f.name) for f in fields(SamplingBatch) if f.name != "num_logprobs"]
    scores, valid = np.zeros((len(hashes), len(LETTERS)), np.float32), np.ones(len(hashes), bool)
    for row, key in enumerate(hashes):
        for column in columns:
            key = crc32(np.ascontiguousarray(column.row(row) if isinstance(column, Ragged) else column[row]), key)
        scores[row], valid[row] = SCORES[key % len(SCORES)], key >> 12 & 127
        allowed = sampling.allowed.row(row)
        if len(allowed):
            scores[row, np.setdiff1d(range(len(LETTERS)), allowed)] -= 100
        scores[row, sampling.bias_ids.row(row)] += sampling.bias_values.row(row)
    ranked, rows = (-scores).argsort(axis=1, kind="stable"), np.arange(len(hashes))
    top = max(sampling.num_logprobs, 0)
    return Samples(ranked[:, 0], valid, scores[rows, ranked[:, 0]], np.ones(len(hashes), np.int64), ranked[:, :top],
                   np.take_along_axis(scores, ranked[:, :top], axis=1))


class Toy:
    """What `collect` takes for an Engine: a loop over a HashRunner. Whose answer is over hears no more."""

    def __init__(self, loop=AheadLoop, num_blocks=100, block_size=4, max_num_seqs=8, budget=400, caching=False, policy="fcfs",
                 has_state=False, num_cached_states=0):
        self.config = SimpleNamespace(max_num_seqs=max_num_seqs)
        self.pool = BlockPool(num_blocks, block_size, caching)
        scheduler = Scheduler(self.pool, max_num_seqs, budget, policy, 4 if has_state else 1, num_cached_states)
        self.runner = HashRunner(num_blocks, block_size, 1 + max_num_seqs + num_cached_states, has_state)
        self.loop = loop(scheduler, self.runner, Letters())
        self._over = set()

    @property
    def has_work(self) -> bool:
        return self.loop.has_work

    def add(self, request_id, prompt, params, priority=0) -> None:
        for index in range(params.n):
            self._over.discard((request_id, index))
            self.loop.add(Request(
                request_id, index, len(prompt), list(prompt), params, draw_seed(params, index),
                max_tokens=min(params.max_tokens, LONGEST - len(prompt)), eos_token_id=EOS,
                stop_token_ids=frozenset(params.stop_token_ids),
                bad_word_ids=[[LETTERS.index(letter) for letter in word] for word in params.bad_words],
                detokenizer=Detokenizer(Letters(), list(prompt), params.stop), priority=priority))

    def abort(self, request_id) -> None:
        scheduler = self.loop.scheduler
        self._over |= {r.key for r in [*scheduler.running, *scheduler.waiting] if r.request_id == request_id}
        self.loop.abort(request_id)

    def step(self):
        deltas = self.loop.step()
        for delta in deltas:
            assert (delta.request_id, delta.index) not in self._over
            if delta.finish_reason is not None:
                self._over.add((delta.request_id, delta.index))
        return deltas


def alone(prompt, params, has_state=False):
    """The output of a request by itself, in the synchronous loop: its prompt in one step, no cache, blocks in plenty."""
    return collect(Toy(SyncLoop, has_state=has_state), [(0, prompt, params, 0)])[0]


def plain(max_tokens: int, **params) -> SamplingParams:
    """Of requests that may be computed ahead of their tokens, and end only at max_tokens, unless `params` say otherwise."""
    return SamplingParams(**{"max_tokens": max_tokens, "ignore_eos": True, "seed": 3, "logprobs": 1} | params)


token = st.integers(0, len(LETTERS) - 1)
words = st.lists(st.text(LETTERS[1:], min_size=1, max_size=2), max_size=2)
ends = {"seed": st.integers(0, 5), "n": st.sampled_from([1, 1, 3]), "max_tokens": st.integers(6, 16),
        "logprobs": st.integers(0, 2), "ignore_eos": st.booleans(), "stop_token_ids": st.lists(token, max_size=1), "stop": words}
extras = {"min_tokens": st.integers(0, 6), "repetition_penalty": st.sampled_from([1, 1.5]), "bad_words": words,
          "presence_penalty": st.sampled_from([0, 0.5]), "frequency_penalty": st.sampled_from([0, 0.5]),
          "logit_bias": st.dictionaries(token, st.integers(-3, 3), max_size=2),
          "allowed_token_ids": st.none() | st.lists(token, min_size=6, unique=True),
          "prompt_logprobs": st.none() | st.just(1)}
any_params = st.one_of(*2 * [st.builds(SamplingParams, **ends)],
                       *(st.builds(SamplingParams, **ends, **{name: values}) for name, values in extras.items()),
                       st.builds(SamplingParams, **ends, **extras))
prompts = st.builds(lambda n, tail: PREFIX[:n] + tail, st.integers(0, len(PREFIX)), st.lists(token, min_size=1, max_size=3))


@settings(max_examples=60)
@given(data=st.data())
def test_any_mix_gives_each_request_the_answer_of_the_synchronous_loop_alone(data):
    def choose(*values):
        return data.draw(st.sampled_from(values))

    has_state, caching, block_size, seqs = choose(False, True), choose(False, True), choose(1, 2, 4), choose(2, 8)
    fewest = -(-LONGEST // block_size) + 1
    engine = Toy(num_blocks=data.draw(st.integers(fewest, 2 * fewest)), block_size=block_size, max_num_seqs=seqs,
                 budget=choose(seqs + 3, 16, 400), policy=choose("fcfs", "priority"), has_state=has_state, caching=caching,
                 num_cached_states=2 * (has_state and caching))
    mix = data.draw(st.lists(st.tuples(st.integers(0, 12), prompts, any_params, st.integers(-1, 1)), min_size=1, max_size=5))
    aborts = data.draw(st.dictionaries(st.integers(1, 15), st.integers(0, len(mix) - 1), max_size=2))
    for output, (_, prompt, params, _) in zip(collect(engine, mix, aborts.items()), mix):
        expected = alone(prompt, params, has_state)
        if output.finished:
            assert answer(output) == answer(expected)
        for found, whole in zip(output.outputs, expected.outputs):
            assert found.token_ids == whole.token_ids[: len(found.token_ids)]                 # also of what was aborted
            assert found.finish_reason is not None or int(output.request_id) in aborts.values()
    assert everything_is_free(engine)
    assert set(engine.runner._saved) <= {request.key for request in engine.loop.scheduler._discards}
    later = collect(engine, [(0, PREFIX, plain(4), 0)])[0]
    assert answer(later) == answer(alone(PREFIX, plain(4), has_state))
    assert everything_is_free(engine) and not engine.has_work


@pytest.mark.parametrize("has_state", (False, True))
def test_preemption_happens_ahead_and_changes_nothing(has_state):
    """Blocks for one longest request, four requests that grow."""
    engine = Toy(num_blocks=11, has_state=has_state)
    mix = [(0, PREFIX[i : i + 8], plain(20 + i), 0) for i in range(4)]
    outputs = collect(engine, mix)
    assert engine.loop.scheduler.num_preemptions > 3 and "LLRLR" in engine.runner.trace
    assert [answer(output) for output in outputs] == [answer(alone(prompt, params, has_state)) for _, prompt, params, _ in mix]


@pytest.mark.parametrize("num_requests", (1, 2, 5))
def test_in_a_steady_decode_each_step_but_the_first_is_launched_before_the_last_one_is_read_and_none_in_vain(num_requests):
    engine = Toy()
    collect(engine, [(0, PREFIX[:i], plain(7), 0) for i in range(1, num_requests + 1)])
    assert engine.runner.trace == "LR" + "L" + 5 * "LR" + "R"                                 # the prompts, six decode steps


def test_a_request_at_its_last_token_is_not_run_ahead_and_holds_the_others_up_for_one_step():
    engine = Toy()
    collect(engine, [(0, PREFIX[:3], plain(4), 0), (0, PREFIX[:5], plain(8), 0)])
    assert engine.runner.trace == "LR" + "L" + 2 * "LR" + "R" + "L" + 3 * "LR" + "R"


@pytest.mark.parametrize("depending", ({"repetition_penalty": 1.2}, {"presence_penalty": 0.1}, {"frequency_penalty": 0.1},
                                       {"bad_words": ("ab",)}))
def test_a_request_whose_draw_depends_on_its_last_token_is_not_run_ahead(depending):
    engine = Toy()
    collect(engine, [(0, PREFIX[:3], plain(9), 0), (0, PREFIX[:5], plain(5, **depending), 0)])
    assert engine.runner.trace == 5 * "LR" + "L" + 3 * "LR" + "R"


def test_a_request_is_run_ahead_from_the_step_after_the_one_that_reaches_min_tokens():
    engine = Toy()
    collect(engine, [(0, PREFIX[:3], plain(7, min_tokens=4), 0)])
    assert engine.runner.trace == 4 * "LR" + "L" + 2 * "LR" + "R"


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_waiting_request_gets_its_first_token_in_the_next_step_but_one_at_the_latest(steps):
    engine = Toy()
    engine.add("early", PREFIX[:3], plain(20))
    for _ in range(steps):
        engine.step()
    engine.add("late", PREFIX[:6], plain(3))
    assert "late" in [delta.request_id for _ in range(2) for delta in engine.step()]


def test_a_queue_that_no_slot_is_free_for_does_not_keep_those_who_run_from_running_ahead():
    engine = Toy(max_num_seqs=1)
    collect(engine, [(0, PREFIX[:3], plain(7), 0), (0, PREFIX[:5], plain(2), 0)])
    assert engine.runner.trace == "LR" + "L" + 5 * "LR" + "R" + "LR" + "LR"


@pytest.mark.parametrize("how", ("stopped", "aborted"))
def test_a_step_ahead_whose_requests_have_all_ended_is_read_and_dropped(how):
    prompt, engine = PREFIX[:5], Toy()
    *before, fifth = alone(prompt, plain(5)).outputs[0].token_ids
    assert fifth not in before
    engine.add("early", prompt, plain(9, stop_token_ids=(fifth,) if how == "stopped" else ()))
    for _ in range(5):
        engine.step()
    if how == "aborted":
        engine.abort("early")
    assert everything_is_free(engine) and not engine.has_work
    ahead = "LR" + "L" + 4 * "LR"
    assert engine.runner.trace == ahead
    engine.add("later", PREFIX, plain(2))
    assert [delta.request_id for delta in engine.step()] == ["later"]
    assert engine.runner.trace == ahead + "R" + "LR"


def test_an_answer_that_was_computed_ahead_is_in_the_prefix_cache():
    engine = Toy(block_size=2, caching=True)
    token_ids = collect(engine, [(0, PREFIX[:6], plain(9), 0)])[0].outputs[0].token_ids
    going_on = collect(engine, [(0, PREFIX[:6] + token_ids, plain(1), 0)])[0]
    assert len(token_ids) == 9 and going_on.num_cached_tokens == 14                            # all but its last token


def test_a_decode_beside_a_later_part_of_another_prompt_takes_its_own_token():
    """That step has more tokens than rows of logits."""
    engine = Toy(has_state=True, caching=True, num_cached_states=2)
    long, short = PREFIX[:11], PREFIX[:2]                                                      # 8 and 2 tokens, then 3 and 1
    outputs = collect(engine, [(0, long, plain(6), 0), (0, short, plain(6), 0)])
    assert [answer(output) for output in outputs] == [answer(alone(prompt, plain(6), True)) for prompt in (long, short)]


@pytest.mark.parametrize("block_size", (1, 2, 4, 16))
def test_following_is_what_the_scheduler_builds_once_the_tokens_are_known(block_size):
    """Prompts of many lengths modulo the block size: some enter a block, some do not, and the longest widens the table."""
    scheduler = Scheduler(BlockPool(200, block_size, False), 8, 400)
    for i in range(5):
        scheduler.add(Request(str(i), 0, 3 + i, PREFIX[: 3 + i], plain(40), i, 40, EOS, frozenset(), [], None))
    ahead = None
    for _ in range(20):
        batch = build(scheduler.schedule(), block_size)
        if ahead is not None:
            check_same_but_for_input_ids(ahead, batch)
        if batch.is_generated.all():
            assert all(scheduler.pool.grow(request, request.num_tokens + 1) for request in batch.sampled)
            ahead = following(batch, block_size)
        for request in batch.sampled:
            request.token_ids.append(7)


def check_same_but_for_input_ids(ahead: Batch, batch: Batch) -> None:
    for found, expected in ((ahead, batch), (ahead.sampling, batch.sampling)):
        for field in fields(found):
            a, b = getattr(found, field.name), getattr(expected, field.name)
            if isinstance(a, Ragged):
                a, b = np.append(a.start_loc, a.values), np.append(b.start_loc, b.values)
            if field.name not in ("input_ids", "sampling"):
                np.testing.assert_array_equal(a, b, field.name)
