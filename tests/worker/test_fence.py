"""The wing that fences attempts: terms are counted from the sending of the last answered Report."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import cloudpickle
import pytest

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.attempts.fence import Fence
from loopline_worker.host.boot_clock import boot_s
from loopline_worker.launch.interface import Job
from loopline_worker.launch.process_tree import PosixTree
from loopline_worker.link.link_quality import LinkQuality
from tests.worker.caller import Caller

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only supervisors on Linux keep the time")
ATTEMPT = AttemptId(1, 1, 1)
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # interpreters cannot import this file


class Tree(PosixTree):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def extend(self, ends_at: float) -> None:
        self.ends.append(ends_at)


def fence_of(quality: LinkQuality) -> Fence:
    return Fence(lambda: quality.answered_at)


def answered(wing: Fence, quality: LinkQuality, seq: int) -> None:
    quality.answered(seq, 0.0, boot_s())
    wing.assign(Assign(seq, seq))


def run(**more: Any) -> Run:
    return Run(ATTEMPT, ("work",), {}, {}, **more)


def test_term_is_counted_from_the_sending_of_the_last_answered_report() -> None:
    quality, job, tree = LinkQuality(100.0), Job(["work"], "folder", {}), Tree()
    wing = fence_of(quality)
    for number, at in ((1, 101.0), (2, 105.0), (3, 109.0)):
        quality.sent(number, at)
    answered(wing, quality, 2)
    part = wing.prepare(run(term_s=10.0), job)
    assert part
    assert job.ends_at == 115.0
    part.started(tree)
    answered(wing, quality, 2)
    answered(wing, quality, 3)
    assert tree.ends == [115.0, 115.0, 119.0]
    quality.connected()
    quality.sent(1, 200.0)
    answered(wing, quality, 1)
    assert tree.ends[-1] == 210.0
    part.after_end()
    answered(wing, quality, 1)
    assert len(tree.ends) == 4


def test_term_is_extended_while_inputs_are_fetched() -> None:
    quality, job, tree = LinkQuality(100.0), Job(["work"], "folder", {}), Tree()
    wing = fence_of(quality)
    part = wing.prepare(run(term_s=10.0), job)
    assert part
    quality.sent(1, 200.0)
    answered(wing, quality, 1)
    assert job.ends_at == 210.0, "it starts only now"
    quality.sent(2, 205.0)
    answered(wing, quality, 2)  # on its way to a supervisor, with the earlier time
    part.started(tree)
    assert tree.ends == [215.0]


def test_attempt_without_a_term_is_not_fenced() -> None:
    job = Job(["work"], "folder", {})
    assert fence_of(LinkQuality()).prepare(run(), job) is None
    assert job.ends_at is None


def linger(seconds: float) -> int:
    time.sleep(seconds)  # the call's own work
    return os.getpid()


async def test_call_is_ended_when_the_master_falls_silent(caller: Caller) -> None:
    caller.bench.runner._wings = [fence_of(LinkQuality(boot_s()))]
    result = await caller.call(linger, 1000, term_s=0.3)
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "the master answered no Report for its whole term")


async def test_term_of_a_call_that_has_ended_does_not_concern_the_next_one(caller: Caller) -> None:
    first = await caller.value(linger, 0)  # a warm interpreter answers long before the term ends
    caller.bench.runner._wings = [fence_of(LinkQuality(boot_s()))]
    assert await caller.value(linger, 0, term_s=2.0) == first, "the interpreter is the same"
    assert await caller.value(linger, 3) == first


async def test_term_of_a_call_can_be_extended(caller: Caller) -> None:
    await caller.value(linger, 0)
    quality = LinkQuality(boot_s())
    wing = fence_of(quality)
    caller.bench.runner._wings = [wing]
    call = caller.run(linger, 3, term_s=2.0)
    caller.bench.runner.start(call)
    await asyncio.sleep(0)  # the warm interpreter has it, with this term
    quality.sent(1, boot_s() + 600.0)
    answered(wing, quality, 1)
    await caller.bench.end_of(call)
    assert caller.bench.results[call.attempt].outcome is Outcome.SUCCEEDED
