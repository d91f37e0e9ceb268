"""vtlite/cuda/sampling*.py: the definition's bits from any split of the work, and what rows share (nothing)."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cuda.conftest import DEVICES
from tests.reference.test_sampling import FILTERS, sampling_batch
from vtlite import reference
from vtlite.cuda import sampling
from vtlite.cuda.device import current
from vtlite.cuda.sampling_rows import COLUMNS, POSITION_LOW, layout, pack, unpack
from vtlite.errors import DeviceError

SIZES = (3, 61, 200)                     # ids: less than a vector, odd, several blocks
INF = math.inf
KINDS = ("smooth", "tied", "peaked", "coarse", "masked")        # of logits: see random_logits


@pytest.fixture
def quick(device, monkeypatch):
    """The device, without the emulator's record of races: the op tests keep that."""
    monkeypatch.setattr(device, "races", False, raising=False)
    return device


def drawn(device, logits, batch, **options) -> reference.Samples:
    table, values = pack(batch, logits.shape[1])
    samples = sampling.sample_rows(device.array(logits), device.array(table), device.array(values), batch.num_logprobs, **options)
    return reference.Samples(*(array.numpy() for array in samples))


def assert_same(got: reference.Samples, expected: reference.Samples) -> None:
    for name, ours, definition in zip(got._fields, got, expected):
        assert ours.astype(definition.dtype).tobytes() == definition.tobytes(), f"{name}: {ours} instead of {definition}"


def check(device, logits, *rows: dict, num_logprobs: int = 3) -> reference.Samples:
    """Draw on the device and compare every bit with the definition."""
    logits, batch = np.asarray(logits, np.float32), sampling_batch(*rows, num_logprobs=num_logprobs)
    got = drawn(device, logits, batch)
    assert_same(got, reference.sample(logits, batch))
    return got


def random_logits(seed: int, shape, kind: str) -> np.ndarray:
    """Smooth, tied (quarters), peaked (distances up to hundreds), coarse (beyond 2^24), or with forbidden ids."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal(shape)
    logits = {"smooth": logits * 3, "tied": np.round(logits * 4) / 4, "peaked": logits * 60, "coarse": np.round(logits * 4) * 2**27,
              "masked": np.where(rng.random(shape) < 0.6, -INF, logits * 3)}[kind].astype(np.float32)
    logits[..., 0] = np.where(np.isfinite(logits.max(axis=-1)), logits[..., 0], 1)
    return logits


def rows_for(vocab_size: int):
    ids = st.integers(0, vocab_size - 1)
    return st.fixed_dictionaries({
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 1.7]), "top_k": st.sampled_from([0, 1, 2, 7, 500]),
        "top_p": st.sampled_from([1.0, 0.95, 0.6, 0.01]), "min_p": st.sampled_from([0.0, 0.0, 0.05, 1.0]),
        "seed": st.integers(0, 2**64 - 1), "position": st.integers(0, 2**40),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.3]), "frequency_penalty": st.sampled_from([0.0, 0.0, 0.4]),
        "presence_penalty": st.sampled_from([0.0, 0.0, -0.3]),
        "prompt_ids": st.lists(ids, max_size=5), "output_ids": st.lists(ids, max_size=5),
        "allowed": st.just([]) | st.just([]) | st.lists(ids, min_size=1, max_size=9, unique=True),
        "biases": st.just({}) | st.dictionaries(ids, st.sampled_from([-5.0, 2.0, -INF]), max_size=2)})


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
          phases=[Phase.explicit, Phase.generate])
@given(st.data(), st.sampled_from(SIZES), st.sampled_from(KINDS), st.integers(0, 99), st.sampled_from([-1, 0, 3]))
def test_every_mix_gives_the_bits_of_the_definition(quick, data, vocab_size, kind, seed, num_logprobs):
    rows = data.draw(st.lists(rows_for(vocab_size), min_size=1, max_size=2))
    check(quick, random_logits(seed, (len(rows), vocab_size), kind), *rows, num_logprobs=num_logprobs)


@pytest.mark.parametrize("kind", KINDS)
def test_each_filter_gives_the_bits_of_the_definition(quick, kind):
    filters = [{}, {"top_p": 0.7}, {"top_k": 20, "top_p": 0.5}, {"top_k": 9, "min_p": 0.1}]
    rows = [{"temperature": 0.9, "seed": 5 + i, "position": 2**33 + i, **row} for i, row in enumerate(filters)]
    check(quick, random_logits(1, (len(rows), 200), kind), *rows, num_logprobs=-1)


def test_a_row_alone_gets_the_bits_it_gets_in_a_batch(quick):
    rows = [{"temperature": 0.8, "top_k": 5, "top_p": 0.9, "seed": 3, "output_ids": [1, 1, 4], "frequency_penalty": 0.5},
            {"temperature": 1.2, "position": 9, "allowed": [7, 30, 31]}, {}]
    logits, batch = random_logits(2, (3, 61), "smooth"), sampling_batch(*rows, num_logprobs=4)
    together = drawn(quick, logits, batch)
    for s, row in enumerate(rows):
        alone = drawn(quick, logits[s : s + 1], dataclasses.replace(sampling_batch(row), num_logprobs=4))
        assert_same(alone, reference.Samples(*(array[s : s + 1] for array in together)))


def test_a_workspace_for_more_rows_serves_fewer_and_is_left_as_it_was(quick):
    """Two calls in one workspace: what the first counted does not reach the second."""
    workspace = sampling.Workspace(4, 61)
    row = {"output_ids": [5, 5, 6], "prompt_ids": [5, 7], "frequency_penalty": 1.0, "repetition_penalty": 2.0, "temperature": 1.0}
    logits, batch = random_logits(3, (2, 61), "smooth"), sampling_batch(row, row, num_logprobs=1)
    first = drawn(quick, logits, batch, workspace=workspace)
    assert_same(drawn(quick, logits, batch, workspace=workspace), first)
    assert not workspace.token_counts.numpy().any()


def test_more_equal_logits_than_a_list_holds_are_all_kept(quick):
    """A list overflows: the row itself is read."""
    capacity = layout(200)["CAPACITY"]
    logits = np.zeros((3, 200), np.float32)
    logits[:, 100:130] = [[-1], [1], [0.001]]
    assert 200 - 30 > capacity
    filters = [{"top_k": 3}, {"top_p": 0.5}, {"top_k": 40, "top_p": 0.9}]
    check(quick, logits, *[{"temperature": 1.0, "seed": i, **row} for i, row in enumerate(filters)], num_logprobs=2)


def test_zeros_of_both_signs_are_equal(quick):
    check(quick, [[-0.0, 0.0, -1, 0.0], [-1, -0.0, -0.0, 0.0]], {}, {"temperature": 0.5, "top_k": 1}, num_logprobs=4)


@pytest.mark.parametrize("row", [[math.nan, 1, 2], [-math.nan, 1, 2], [0, INF, 1], [-INF] * 3, [math.nan] * 3], ids=str)
def test_logits_without_a_finite_maximum_are_invalid_and_harm_no_neighbour(quick, row):
    rows = [{"temperature": 1.0, "top_k": 1}, {"temperature": 1.0, "top_p": 0.5}, {}]
    assert check(quick, [[1, 3, 2], row, [1, 2, 3]], *rows, num_logprobs=2).valid.tolist() == [1, 0, 1]


def test_a_request_that_leaves_no_id_or_overflows_is_invalid(quick):
    rows = [{"allowed": [1], "biases": {1: -INF}}, {"repetition_penalty": 1e-38, "prompt_ids": [0, 1], "temperature": 1.0},
            {"biases": {1: INF}}, {"temperature": 1e-38, "top_k": 2}]
    logits = np.tile(np.array([40, 3, 2], np.float32), (4, 1))
    assert not check(quick, logits, *rows, num_logprobs=0).valid.any()


@pytest.mark.parametrize("kind", ["smooth", "tied"])
def test_one_block_per_row_gives_the_same_bits(quick, monkeypatch, kind):
    monkeypatch.setattr(sampling, "BLOCKS_PER_SM", 0)
    rows = [{"temperature": 0.9, "top_k": 5, "seed": 1}, {"temperature": 2.0, "top_k": 32, "top_p": 0.6}]
    check(quick, random_logits(5, (2, 403), kind), *rows, num_logprobs=2)


def test_big_blocks_give_the_same_bits(quick, monkeypatch):
    """The constants of a real vocabulary, on a small one."""
    monkeypatch.setattr(sampling, "layout", lambda vocab_size: layout(8192))
    logits = random_logits(4, (1, 300), "tied")
    batch = sampling_batch({"temperature": 1.0, "top_k": 40, "top_p": 0.8, "seed": 1}, num_logprobs=2)
    assert_same(drawn(quick, logits, batch, workspace=sampling.Workspace(1, 300)), reference.sample(logits, batch))


def test_a_packed_table_says_what_the_batch_says():
    rows = [{"seed": 2**64 - 1, "position": 2**40, "top_k": 5, "top_p": 0.9, "biases": {3: -INF, 4: 1.5}, "output_ids": [1, 2, 2]},
            {"temperature": 0.5, "min_p": 0.1, "allowed": [0, 9], "prompt_ids": [8], "top_k": 10}]
    batch = sampling_batch(*rows, num_logprobs=2)
    table, values = pack(batch, 10)
    assert table.shape == (2, COLUMNS)
    got = unpack(table, values, 2)
    for field in dataclasses.fields(batch):
        expected, found = getattr(batch, field.name), getattr(got, field.name)
        if hasattr(expected, "row"):
            for s in range(2):
                np.testing.assert_array_equal(found.row(s), expected.row(s), field.name)
        elif field.name != "top_k":
            np.testing.assert_array_equal(found, expected, field.name)
    assert got.top_k.tolist() == [5, 0]                              # k of the whole vocabulary is no filter


def test_an_id_outside_the_vocabulary_is_named():
    with pytest.raises(DeviceError, match="output_ids holds ids 2 .. 10; the vocabulary has 10"):
        pack(sampling_batch({"output_ids": [2, 10]}), 10)


def test_a_workspace_of_another_size_is_refused(quick):
    workspace = sampling.Workspace(1, 8)
    with pytest.raises(DeviceError, match="for 1 rows of 8 ids; found 2 of 8"):
        drawn(quick, np.zeros((2, 8), np.float32), sampling_batch({}, {}), workspace=workspace)


# -- a million draws, on a GPU

def wilson_hilferty(observed: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square of counts against their expectation, as standard deviations; cells below 5 are pooled."""
    rare = expected < 5
    cells = [*zip(observed[~rare], expected[~rare])] + ([(observed[rare].sum(), expected[rare].sum())] if rare.any() else [])
    chi_square, freedom = sum((o - e) ** 2 / e for o, e in cells), len(cells) - 1
    return ((chi_square / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / math.sqrt(2 / (9 * freedom))


def draw_counts(device, row: dict, logits: np.ndarray, draws: int, rows: int) -> np.ndarray:
    """How often each id of logits [V] is drawn at positions 0 .. draws - 1, `rows` positions per launch: [V]."""
    tiled, counts = device.array(np.tile(logits, (rows, 1))), np.zeros(len(logits), np.int64)
    for start in range(0, draws, rows):
        batch = sampling_batch(row)
        table, values = pack(batch, len(logits))
        table = np.tile(table, (rows, 1))
        table[:, POSITION_LOW] = np.arange(start, start + rows)
        samples = sampling.sample_rows(tiled, device.array(table), device.array(values), -1)
        counts += np.bincount(samples.token_ids.numpy(), minlength=len(logits))
    return counts


@pytest.mark.gpu
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_million_draws_follow_the_filtered_distribution(monkeypatch, filters, draws=1_000_000, rows=20_000):
    monkeypatch.setenv("VTLITE_DEVICE", DEVICES["gpu"])
    logits = np.random.Generator(np.random.PCG64(0)).standard_normal(32).astype(np.float32) * np.float32(2)
    observed = draw_counts(current(), {**filters, "seed": 42}, logits, draws, rows)
    z = logits / np.float32(filters["temperature"])
    kept = reference.sampling.filter_ids(z, *(filters.get(name, off) for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))))
    weights = np.exp(z[kept].astype(np.float64))
    assert observed.sum() == observed[kept].sum() == draws
    assert wilson_hilferty(observed[kept], draws * weights / weights.sum()) < 4
