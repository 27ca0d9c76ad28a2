"""Every rule that keeps a task off a worker with room for it is put into words by ``explain``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest

from loopline_master.core.events import JobSubmitted
from loopline_master.core.explain.explain_job import explain_job, explain_task
from loopline_master.core.explain.vetoes import OF_KERNEL, OF_WINGS
from loopline_shared.model import Order, Outcome, TaskId
from tests.house.sources import sources
from tests.scheduling.driver import Grid, facts, spec


def _worker_ends() -> tuple[Grid, int]:
    grid = Grid()
    grid.join("a", replace(facts(1), until=grid.now + 60.0))
    return grid, grid.submit(1, 1000.0)


def _tried_there() -> tuple[Grid, int]:
    grid = Grid(order=Order.NONE)
    grid.join("a")
    grid.join("b")
    grid.submit(1, 100.0, max_replicas=1)
    job = grid.submit(1, 5.0, quorum=2)
    (attempt,) = grid.attempts_of(TaskId(job, 1))
    grid.end(attempt)
    return grid, job


def _failed_there() -> tuple[Grid, int]:
    grid = Grid(order=Order.NONE)
    grid.join("a")
    grid.join("b")
    grid.submit(1, 100.0, max_replicas=1)
    job = grid.submit(1, 5.0, max_replicas=1)
    (attempt,) = grid.attempts_of(TaskId(job, 1))
    grid.scheduler.state.workers[grid.attempt(job).worker].health = -1.0
    grid.end(attempt, Outcome.FAILED)
    return grid, job


def _gang() -> tuple[Grid, int]:
    grid = Grid(order=Order.NONE, max_replicas=1)
    grid.workers("ant", "bee", gangs=True)
    grid.submit(size=600, timeout_s=1000)
    grid.submit(nodes=2, size=60, timeout_s=100)
    for name in ("ant", "bee"):
        grid.report(name)
    return grid, grid.submit(size=6000)


def _user_slots() -> tuple[Grid, int]:
    grid = Grid(order=Order.NONE, shares=True, user_slots=2, max_replicas=1)
    grid.join("a", facts(1))
    grid.ask(JobSubmitted("ann", spec()))
    grid.join("b", facts(4))
    grid.ask(JobSubmitted("ann", spec(requires={"exclusive": True})))
    return grid, 2


def _restored() -> tuple[Grid, int]:
    grid = Grid(lease_s=40.0)
    grid.join("a")
    grid.store = deepcopy(grid.store)
    grid.store.grid.units_withheld_until = None
    grid.restart()
    grid.join("a")
    return grid, grid.submit(1, max_replicas=1)


SCENES: dict[str, Callable[[], tuple[Grid, int]]] = {
    "worker_ends": _worker_ends,
    "tried_there": _tried_there,
    "failed_there": _failed_there,
    "gang": _gang,
    "user_slots": _user_slots,
    "restored": _restored,
}
_REASONS = {"tried_there": "quorum"}
"""Another reason, by the code of the rule, that a job is given for all of its tasks together."""


@pytest.mark.parametrize("code", SCENES)
def test_explain_names_the_rule_that_keeps_a_task_off_a_free_worker(code: str) -> None:
    grid, job = SCENES[code]()
    of_job, of_task = explain_job(grid.scheduler, job), explain_task(grid.scheduler, TaskId(job, 1))
    assert of_job is not None
    assert of_task is not None
    for explained in (of_job, of_task):
        words = {**OF_KERNEL, **OF_WINGS}[code]
        is_reason = {code, _REASONS.get(code)} & {reason.code for reason in explained.reasons}
        assert is_reason or f"a start on 1 free worker {words}" in explained.sentence
        assert "another use" not in explained.sentence


def test_user_at_their_limit_of_slots_reads_it_once() -> None:
    grid = Grid(order=Order.NONE, shares=True, user_slots=1, max_replicas=1)
    grid.join("a", facts(2))
    grid.ask(JobSubmitted("ann", spec(2)))
    of_job, of_task = explain_job(grid.scheduler, 1), explain_task(grid.scheduler, TaskId(1, 2))
    assert of_job is not None
    assert of_task is not None
    said = "ann has 1 of the 1 slots that one user may have at once"
    assert of_task.sentence == said
    assert said in of_job.sentence
    assert OF_WINGS["user_slots"] not in of_job.sentence


def test_every_code_of_a_veto_has_words_and_a_scene() -> None:
    codes = {
        call.args[0].value
        for source in sources("loopline_master")
        for call in source.nodes
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Veto" and isinstance(call.args[0], ast.Constant)
    }
    assert codes == {*OF_WINGS}
    assert {*SCENES} == {*OF_KERNEL, *OF_WINGS}


def test_task_is_given_its_own_reason_and_not_that_of_the_next_task() -> None:
    grid = Grid(order=Order.NONE)
    grid.join("a")
    grid.join("b")
    grid.submit(1, 100.0, max_replicas=1)
    job = grid.submit(2, 5.0, quorum=2)
    (first,) = grid.attempts_of(TaskId(job, 1))
    grid.end(first)
    (second,) = grid.attempts_of(TaskId(job, 2))
    grid.scheduler.state.workers[grid.attempt(job).worker].health = -1.0
    grid.end(second, Outcome.FAILED)
    for task, code in ((1, "tried_there"), (2, "failed_there")):
        explained = explain_task(grid.scheduler, TaskId(job, task))
        assert explained is not None
        assert f"a start on 1 free worker {OF_KERNEL[code]}" in explained.sentence
