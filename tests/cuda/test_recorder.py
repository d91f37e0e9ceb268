"""The cubins that are compiled ahead are all that a GPU machine without a compiler needs for its tests."""

import numpy as np

from tests.cuda.conftest import compiled_ahead
from tests.cuda.test_sampling import draw_counts
from vtlite.cuda import activation, bandwidth
from vtlite.cuda.device import using
from vtlite.cuda.lang import bf16
from vtlite.cuda.probe_arithmetic import arithmetic
from vtlite.cuda.recorder import Recorder


def test_what_only_gpu_tests_launch_is_compiled_ahead():
    """Tests that also run on the emulator are checked where they run: see conftest.device."""
    recorder = Recorder()
    with using(recorder):
        floats, words = recorder.zeros((1024,), np.float32), recorder.zeros((1024,), np.uint32)
        arithmetic(floats, floats, floats, words, words)
        bandwidth.copy(words)
        bandwidth.read(words)
        draw_counts(recorder, {"temperature": 0.7, "top_k": 5}, np.zeros(32, np.float32), draws=2, rows=2)
    assert len(recorder.launched) > 3
    assert [specialized.name for specialized in recorder.launched if specialized not in compiled_ahead()] == []


def test_a_size_that_no_case_has_is_not_compiled_ahead():
    recorder = Recorder()
    with using(recorder):
        activation.silu_and_mul(recorder.zeros((1, 2 * 88), bf16))
    assert [specialized in compiled_ahead() for specialized in recorder.launched] == [False]
