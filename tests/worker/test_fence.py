"""The wing that fences attempts: terms are counted from the sending of the last answered Report."""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from typing import Any

import cloudpickle
import pytest

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.attempts import fence
from loopline_worker.attempts.fence import Fence
from loopline_worker.launch.interface import Job
from loopline_worker.launch.process_tree import PosixTree
from tests.worker.bench import until
from tests.worker.caller import Caller

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only supervisors on Linux keep the time")
ATTEMPT = AttemptId(1, 1, 1)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # interpreters cannot import this file


class Tree(PosixTree):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def extend(self, ends_at: float) -> None:
        self.ends.append(ends_at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(fence, "boot_s", lambda: now[0])
    return now


def run(**more: Any) -> Run:
    return Run(ATTEMPT, ("work",), {}, {}, **more)


def test_term_is_counted_from_the_sending_of_the_last_answered_report(clock: list[float]) -> None:
    wing, job, tree = Fence(), Job(["work"], "folder", {}), Tree()
    for number, at in ((1, 101.0), (2, 105.0), (3, 109.0)):
        clock[0] = at
        wing.reported(number)
    wing.assign(Assign(1, 2))
    part = wing.prepare(run(term_s=10.0), job)
    assert part
    assert job.ends_at == 115.0
    part.started(tree)
    wing.assign(Assign(2, 2))
    wing.assign(Assign(3, 3))
    assert tree.ends == [115.0, 115.0, 119.0]
    clock[0] = 200.0
    wing.reported(1)  # of a new session
    wing.assign(Assign(1, 1))
    assert tree.ends[-1] == 210.0
    part.after_end()
    wing.assign(Assign(2, 1))
    assert len(tree.ends) == 4


def test_term_is_extended_while_inputs_are_fetched(clock: list[float]) -> None:
    wing, job, tree = Fence(), Job(["work"], "folder", {}), Tree()
    part = wing.prepare(run(term_s=10.0), job)
    assert part
    clock[0] = 200.0
    wing.reported(1)
    wing.assign(Assign(1, 1))
    assert job.ends_at == 210.0, "it starts only now"
    clock[0] = 205.0
    wing.reported(2)
    wing.assign(Assign(2, 2))  # on its way to a supervisor, with the earlier time
    part.started(tree)
    assert tree.ends == [215.0]


def test_attempt_without_a_term_is_not_fenced() -> None:
    job = Job(["work"], "folder", {})
    assert Fence().prepare(run(), job) is None
    assert job.ends_at is None


def linger(seconds: float) -> int:
    time.sleep(seconds)  # the call's own work
    return os.getpid()


async def test_call_is_ended_when_the_master_falls_silent(caller: Caller) -> None:
    caller.bench.runner._wings = [Fence()]
    result = await caller.call(linger, 1000, term_s=0.3)
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "the master answered no Report for its whole term")


async def test_term_of_a_call_that_has_ended_does_not_concern_the_next_one(caller: Caller) -> None:
    caller.bench.runner._wings = [Fence()]
    first = await caller.value(linger, 0, term_s=1.0)
    assert await caller.value(linger, 3) == first, "the interpreter is the same"


async def test_term_of_a_call_can_be_extended(caller: Caller) -> None:
    wing, numbers = Fence(), count(1)
    caller.bench.runner._wings = [wing]
    call = caller.run(linger, 4, term_s=3.0)
    caller.bench.runner.start(call)

    def has_ended() -> bool:
        wing.reported(number := next(numbers))
        wing.assign(Assign(number, number))
        return call.attempt in caller.bench.results

    await until(has_ended)
    assert caller.bench.results[call.attempt].outcome is Outcome.SUCCEEDED
