"""Jobs that ended long ago are deleted, row by row; their use stays in the history, and the log can be replayed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from loopline_master.history.forgetting import Forgetting
from loopline_master.store import Store
from loopline_master.store.replay import check
from loopline_master.store.tables import metadata
from loopline_shared.model import Outcome, Result
from loopline_shared.protocol.worker_link import Run
from tests.api.bench import Bench, done, running_master, until

DAY_S = 86400.0
FIGURES = ("jobs", "tasks", "attempts", "wall_s", "useful_cpu_s", "wasted_cpu_s", "lost_cpu_s")


UNIT_S = 2.0**-12
"""Times are multiples of it, so that sums are exact; it is shorter than the time that any task was dispatched."""


def ends(run: Run) -> Result:
    if run.command[0] == "fails":
        return Result(run.attempt, Outcome.FAILED, 1, wall_s=2 * UNIT_S, cpu_s=UNIT_S)
    return done(run, wall_s=4 * UNIT_S, cpu_s=3 * UNIT_S)


async def lines(master: Bench, by: str) -> dict[str, tuple[Any, ...]]:
    report = await master.get(f"/history?by={by}")
    return {line["subject"]: tuple(line[name] for name in FIGURES) for line in report["lines"]}


async def jobs_with_rows(master: Bench) -> set[int]:
    tables = [table for table in metadata.tables.values() if "job" in table.c]
    read = master.parts[Store]._read
    found = [
        await read(lambda connection, table=table: set(connection.scalars(select(table.c.job)))) for table in tables
    ]
    return set().union(*found)


async def _is_over(master: Bench, job: int) -> bool:
    return (await master.get(f"/jobs/{job}"))["state"] in ("succeeded", "failed")


async def test_history_keeps_the_use_of_deleted_jobs(tmp_path: Path) -> None:
    async with running_master(tmp_path, keep_jobs_days=30) as master:
        async with master.worker("ant", does=ends):
            done_, failed, needed = [
                await master.submit(command=[name], parameters={"i": {"range": [1, 3]}}, max_attempts=1)
                for name in ("works", "fails", "fails")
            ]
            for job in (done_, failed, needed):
                await until(lambda job=job: _is_over(master, job))
            waiting = await master.submit(command=["works"], after=[needed])
        forgetting, now = master.parts[Forgetting], time.time()
        users, workers = await lines(master, "user"), await lines(master, "worker")
        assert users["the-admin"][:3] == (3, 3, 9)
        assert await forgetting.forget_jobs(now + 29 * DAY_S) == 0
        await forgetting.forget_jobs(now + 31 * DAY_S)
        assert [job["id"] for job in (await master.get("/jobs"))["items"]] == [waiting, needed]
        assert await jobs_with_rows(master) <= {waiting, needed}
        assert (await lines(master, "user"), await lines(master, "worker")) == (users, workers)
        assert (await lines(master, "job")).keys() == {str(needed)}
        assert (await master.ask("POST", f"/jobs/{failed}/retry")).status == 404
        await forgetting.forget_jobs(now + 31 * DAY_S)
        assert await lines(master, "user") == users, "use already added to the history is not counted twice"
    assert await check(str(tmp_path / "loopline.db")) == []


async def test_use_is_exact_while_a_large_job_is_deleted_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopline_master.history.forgetting._TASKS_AT_ONCE", 4)
    monkeypatch.setattr("loopline_master.history.forgetting.FORGET_PAUSE_S", 0.0)
    async with running_master(tmp_path, keep_jobs_days=30) as master:
        async with master.worker("ant", does=ends), master.worker("bee", does=ends):
            job = await master.submit(command=["fails"], parameters={"i": {"range": [1, 15]}}, max_attempts=1)
            await until(lambda: _is_over(master, job))
        users, workers = await lines(master, "user"), await lines(master, "worker")
        assert workers.keys() == {"ant", "bee"}
        store, later = master.parts[Store], time.time() + 31 * DAY_S
        first = await store.first_tasks(job)
        while await store.shorten(job, 4, later, first):  # the master may be killed after each step
            assert (await lines(master, "user"), await lines(master, "worker")) == (users, workers)
            assert (await master.ask("POST", f"/jobs/{job}/retry")).status == 410
            assert await check(str(tmp_path / "loopline.db")) == []
            first = await store.first_tasks(job)
        assert len((await master.get(f"/jobs/{job}/attempts"))["items"]) == 3
        again = await master.submit(command=["fails"], parameters={"i": {"range": [1, 9]}}, max_attempts=1)
        async with master.worker("ant", does=ends):
            await until(lambda: _is_over(master, again))
        users, workers = await lines(master, "user"), await lines(master, "worker")
        await master.parts[Forgetting].forget_jobs(later)
        assert await jobs_with_rows(master) == set()
        assert (await lines(master, "user"), await lines(master, "worker")) == (users, workers)
    assert await check(str(tmp_path / "loopline.db")) == []
