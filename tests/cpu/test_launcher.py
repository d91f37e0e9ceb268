"""Tasks are done once each, calls in their order, whoever takes part."""

import os
import threading
import time

import numpy as np
import pytest

from tests.cpu.threads import threads
from vtlite.cpu import launcher
from vtlite.cpu.kernel import Kernel, pointer_to, recording, run


@Kernel
def count(task, args):
    """Task i counts in cell i, and what it finds of the call before it in cell i of another array."""
    counts, before, seen = pointer_to(args[0], np.int64), pointer_to(args[1], np.int64), pointer_to(args[2], np.int64)
    counts[task] += 1
    total = 0
    for i in range(args[3]):
        total += before[i]
    seen[task] = total


@pytest.mark.parametrize("number", (1, 2, 5))
@pytest.mark.parametrize("tasks", (1, 2, 7, 300))
def test_every_task_runs_once_and_sees_all_of_the_call_before(number, tasks):
    rounds = 40
    counts, seen = np.zeros((rounds + 1, tasks), np.int64), np.zeros((rounds, tasks), np.int64)
    with threads(number), recording() as tape:
        for i in range(rounds):
            run(count, tasks, counts[i + 1], counts[i], seen[i], tasks, parallel=i % 3 > 0)
    assert (counts[1:] == 1).all()
    counts[...] = 0
    with threads(number):
        for repeat in range(1, 6):
            launcher.launch(np.concatenate([call for call, _ in tape]), rounds)
            assert (counts[1:] == repeat).all()
            assert (seen[1:] == repeat * tasks).all()


def test_callers_at_once_do_not_disturb_each_other():
    """One of them gets the worker threads; the others do their own work alone."""
    def call_often(counts):
        for _ in range(300):
            run(count, 64, counts, counts, np.empty(64, np.int64), 0)
    results = np.zeros((4, 64), np.int64)
    with threads(3):
        callers = [threading.Thread(target=call_often, args=[counts]) for counts in results]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert (results == 300).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_starts_workers_of_its_own():
    counts = np.zeros(64, np.int64)
    with threads(2):
        run(count, 64, counts, counts, np.empty(64, np.int64), 0)
        child = os.fork()
        if child == 0:
            for _ in range(50):
                run(count, 64, counts, counts, np.empty(64, np.int64), 0)
            started = any(thread.name.startswith("vtlite-cpu") for thread in threading.enumerate())
            os._exit(0 if (counts == 51).all() and started else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_workers_fall_asleep_when_there_is_nothing_to_do():
    counts = np.zeros(64, np.int64)
    with threads(2):
        run(count, 64, counts, counts, np.empty(64, np.int64), 0)
        deadline = time.monotonic() + 240            # on a busy core a look out takes as long as others let it
        while launcher._board[launcher.AWAKE]:
            assert time.monotonic() < deadline, "a worker is still looking out for work"
            time.sleep(0.01)
        run(count, 64, counts, counts, np.empty(64, np.int64), 0)
    assert (counts == 2).all()
