"""Answers about one job or task visit its own tasks alone, however many run elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from loopline_master.core.wings.checkpoints.checkpoints_wing import Checkpoints
from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount
from loopline_master.task_progress import TaskProgress
from loopline_shared.model import AttemptId, Held, Load
from loopline_shared.protocol.worker_link import Report
from tests.scheduling.driver import Grid
from tests.scheduling.test_checkpoints import SavingGrid, ledger, saving


class NoScan(dict[Any, Any]):
    """A dict whose entries must not all be visited."""

    def _refuse(self) -> Any:
        raise AssertionError("all entries are visited")

    __iter__ = items = values = _refuse


def test_progress_of_a_job_visits_its_own_attempts() -> None:
    grid = Grid(prefetch_s=0.0)
    grid.workers("a", "b", "c")
    job, _ = grid.submit(2, max_replicas=1), grid.submit(1, max_replicas=1)
    progress = TaskProgress()
    for part, name in enumerate(("a", "b", "c")):
        held = tuple(Held(attempt, 1.0, progress=0.2 + part * 0.2) for attempt in grid.running(name))
        progress.note(name, Report(1, 1, held, (), Load(1)))
    own = [0.2 + part * 0.2 for part, name in enumerate(("a", "b", "c")) if grid.running(name)[0].job == job]
    progress._of = NoScan(progress._of)
    state = grid.scheduler.state
    assert progress.of_job(state, state.jobs[job]) == pytest.approx(sum(own) / 2)


def test_success_of_a_task_visits_its_own_accounts() -> None:
    grid = SavingGrid()
    grid.workers("ant", "bee")
    job = grid.submit(checkpoint=saving(), max_replicas=1)
    grid.now += 100.0
    first = grid.only(job)
    grid.saves(first, cpu_s=60.0)
    wing = grid.scheduler.state.wings[Checkpoints]
    accounts: dict[AttemptId, CheckpointAccount] = NoScan(wing._accounts)
    wing._accounts = accounts
    grid.end(first, cpu_s=90.0, wall_s=90.0)
    assert ledger(grid, job) == (90.0, 0.0, 0.0, 0.0)
