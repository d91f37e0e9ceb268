"""A step's inputs in one buffer: every array where its layout says, padding that harms nobody, prompt rows that draw their target."""

import numpy as np
import pytest

from vtlite.engine.batch import build, with_prompt_rows
from vtlite.engine.request import Request
from vtlite.engine.sampling_params import SamplingParams
from vtlite.engine.scheduler import Plan
from vtlite.engine.step_inputs import Layout, StepInputs


def request(tokens: list[int], prompt_len: int, computed: int, blocks: list[int], **params) -> Request:
    return Request("r", 0, prompt_len, tokens, SamplingParams(**params), seed=1, max_tokens=9, eos_token_id=None,
                   stop_token_ids=frozenset(), bad_word_ids=[], detokenizer=None, num_computed_tokens=computed, block_ids=blocks,
                   state_slot=3)


def test_arrays_share_a_buffer_without_touching_each_other():
    layout = Layout(a=((3,), np.int64), b=((2, 5), np.uint8), empty=((0, 4), np.float32), c=((1,), np.float32))
    views = layout.views(np.zeros(layout.nbytes, np.uint8))
    assert [view.shape for view in vars(views).values()] == [(3,), (2, 5), (0, 4), (1,)]
    for number, name in enumerate(vars(views), 1):
        getattr(views, name)[...] = number
    assert (views.a == 1).all() and (views.b == 2).all() and (views.c == 4).all()
    assert layout.start_of("b") % 16 == layout.start_of("c") % 16 == 0


@pytest.fixture
def decode_batch():
    requests = [request([7, 8, 9], 2, 3, [5]), request([1] * 18, 4, 18, [6, 4])]
    return build(Plan(scheduled=dict.fromkeys(requests, 1)), block_size=16)


def test_a_decode_step_is_padded_with_sequences_without_length(decode_batch):
    inputs, table = StepInputs(4, 4, 3, 4, 2, 8), np.arange(4, dtype=np.uint32).reshape(2, 2) + 1
    inputs.buffer[:] = 255                                                   # what a larger step left
    inputs.load(decode_batch, table, np.array([42], np.uint32))
    host = inputs.host
    assert host.input_ids.tolist() == [9, 1, 0, 0]
    assert host.positions.tolist() == [2, 17, 0, 0]
    assert host.slot_mapping.tolist() == [5 * 16 + 2, 4 * 16 + 1, -1, -1]
    assert host.query_start_loc.tolist() == [0, 1, 2, 3, 4]
    assert host.seq_lens.tolist() == [3, 18, 0, 0]
    assert host.state_slots.tolist() == [3, 3, 0, 0]
    assert host.logits_indices.tolist() == [0, 1, 2, 3]
    assert host.block_table[:, :2].tolist() == [[5, 0], [6, 4], [0, 0], [0, 0]]
    assert host.table.tolist() == [[1, 2], [3, 4], [0, 0], [0, 0]]
    assert host.values[0] == 42 and inputs.num_bytes == inputs.layout.start_of("values") + 4


def test_rows_of_prompt_logprobs_draw_the_token_that_follows():
    """One request in the midst of its prompt, whose logprobs are wanted, and one that draws with a penalty."""
    asked = request([10, 11, 12, 13], 4, 3, [1], prompt_logprobs=2)
    drawing = request([1, 2, 3], 2, 3, [2], temperature=0.5, presence_penalty=1.0, logprobs=0)
    batch = build(Plan(scheduled={asked: 3, drawing: 1}), block_size=16)
    sampling = with_prompt_rows(batch)
    assert batch.sample_indices.tolist() == [3] and batch.prompt_indices.tolist() == [0, 1, 2]
    assert [sampling.allowed.row(i).tolist() for i in range(4)] == [[11], [12], [13], []]
    assert sampling.temperature.tolist() == [0, 0, 0, 0.5] and sampling.top_p.tolist() == [1, 1, 1, 1]
    assert [sampling.output_ids.row(i).tolist() for i in range(4)] == [[], [], [], [3]]
    assert sampling.num_logprobs == 2


def test_without_prompt_rows_the_sampling_is_the_batchs_own(decode_batch):
    assert with_prompt_rows(decode_batch) is decode_batch.sampling
