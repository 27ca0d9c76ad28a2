"""A worker whose computer sleeps, with a logind of python-dbusmock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loopline_shared.model import AttemptState
from loopline_shared.protocol.power import SleepCause, SleepKind
from loopline_shared.rest.bodies import WorkerView
from tests.live.grid import Grid, wait_for
from tests.worker.presence.test_buses import Service
from tests.worker.presence.test_login_manager import DELAY, emit, mock_logind, until_locked

pytest.importorskip("jeepney")


@asynccontextmanager
async def sleepy_worker(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """Start the worker ``ant``, and yield its logind once it would wait for the worker before a sleep."""
    async with mock_logind(monkeypatch) as logind:
        await grid.start_worker("ant")
        await grid.connected("ant")
        await until_locked(logind, DELAY)
        yield logind
        await grid.stop_worker("ant")


async def until_asleep(grid: Grid) -> WorkerView:
    async def is_asleep() -> WorkerView | None:
        view = await grid.client().worker("ant")
        return view if view.sleep and view.sleep.since is not None and not view.connected else None

    return await wait_for("the worker to be asleep", is_asleep)


async def test_task_sleeps_with_its_computer_and_continues(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sleepy_worker(grid, monkeypatch) as logind:
        gate = grid.gate()
        job = await grid.submit(gate.wait)
        await grid.attempts_when("it to run", job, lambda them: any(a.state is AttemptState.RUNNING for a in them))
        await emit(logind, "PrepareForSleep", True)
        view = await until_asleep(grid)
        assert view.sleep
        assert (view.sleep.kind, view.sleep.by) == (SleepKind.SUSPEND, SleepCause.IDLE)
        await until_locked(logind)
        (attempt,) = await grid.attempts(job)
        assert attempt.state is AttemptState.FROZEN
        explanation = await grid.client().explain("ant")
        assert explanation.state == "asleep"
        await emit(logind, "PrepareForSleep", False)
        await grid.connected("ant")
        await until_locked(logind, DELAY)
        await grid.attempts_when("it to go on", job, lambda them: them[0].state is AttemptState.RUNNING)
        gate.open()
        await grid.ended(job)
        assert len(await grid.attempts(job)) == 1


async def test_fenced_task_is_given_back_before_the_sleep(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sleepy_worker(grid, monkeypatch) as logind:
        gate = grid.gate()
        job = await grid.submit(gate.wait, max_replicas=1)
        await grid.attempts_when("it to run", job, lambda them: any(a.state is AttemptState.RUNNING for a in them))
        await emit(logind, "PrepareForSleep", True)
        await until_asleep(grid)
        await grid.start_worker("bee")
        await grid.attempts_when("it to run elsewhere", job, lambda them: them[-1].worker == "bee")
        gate.open()
        await grid.ended(job)


async def test_shutdown_gives_all_tasks_back(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sleepy_worker(grid, monkeypatch) as logind:
        gate = grid.gate()
        job = await grid.submit(gate.wait)
        await grid.attempts_when("it to run", job, lambda them: any(a.state is AttemptState.RUNNING for a in them))
        await emit(logind, "PrepareForShutdown", True)
        view = await until_asleep(grid)
        assert view.sleep
        assert view.sleep.kind is SleepKind.OFF
        await grid.no_processes()
        await grid.client().cancel(job)
