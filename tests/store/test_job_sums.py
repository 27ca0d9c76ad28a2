"""Sums of large jobs: they always equal the sums of the attempts, and are deleted with their job."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from loopline_master.core.events import BATCH, MasterStarted
from loopline_master.core.scheduler import Scheduler
from loopline_master.store import open_store
from loopline_master.store.history import job_sums
from loopline_master.store.queries.timeline_queries import Chosen
from loopline_master.store.tables import attempts, jobs
from loopline_master.store.tables import job_sums as kept
from loopline_shared.model import AttemptId, AttemptState, JobState, Outcome, Result, TaskState
from tests.campaign import PATIENT, tried
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep
from tests.store.workload import lived_through

SUBJECTS = ("user", "worker", "job")


@pytest.fixture(autouse=True, scope="module")
def small():
    """Treat every job as large, with pieces of two tasks."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(job_sums, "LARGE", 1)
        monkeypatch.setattr(job_sums, "PIECE", 2)
        yield


async def sum_up(store):
    while await store.job_sums.sum_next():
        pass


async def pieces(store):
    return await store._read(job_sums.known_pieces)


async def usage_shown(store, windows):
    """Return the usage shown for these windows, and the history of each job."""
    lines = {(by, *window): (await store.usage.by(by, *window, 1000)).lines for by in SUBJECTS for window in windows}
    numbers = await store._read(lambda connection: list(connection.scalars(select(jobs.c.id))))
    said = {key: {line.subject: line.model_dump() for line in found} for key, found in lines.items()}
    stories = [asdict(await store.job_histories.of_job(job)) for job in numbers]
    return said, [{**(story.pop("slowest") or {}), **story} for story in stories]


async def check_usage(store, windows):
    """Check that usage with sums equals usage from attempts alone."""
    usage, stories = await usage_shown(store, windows)
    with pytest.MonkeyPatch.context() as off:
        off.setattr(job_sums, "LARGE", 10**9)
        of_attempts, stories_of_attempts = await usage_shown(store, windows)
    for key, lines in of_attempts.items():
        assert usage[key].keys() == lines.keys(), key
        for subject, line in lines.items():
            assert usage[key][subject] == pytest.approx(line), (key, subject)
    for story, of_attempts_alone in zip(stories, stories_of_attempts, strict=True):
        assert story == pytest.approx(of_attempts_alone)


async def check_windows(store, windows):
    """Check that sums change neither the bars shown, including the latest, nor the attempts begun."""
    for job in await store._read(lambda connection: list(connection.scalars(select(jobs.c.id)))):
        for limit in (1, 2, 4, 1000):
            found = [await store.timelines.window(*window, of=Chosen(job), limit=limit) for window in windows]
            begun = await store.timelines.begun(job, 1e12, limit)
            with pytest.MonkeyPatch.context() as off:
                off.setattr(job_sums, "LARGE", 10**9)
                assert found == [await store.timelines.window(*one, of=Chosen(job), limit=limit) for one in windows]
                without = await store.timelines.begun(job, 1e12, limit)
            keys = [key for part in begun.parts(2) for key in part]
            assert keys == [key for part in without.parts(1000) for key in part]
            assert len(keys) <= limit
            assert begun.workers == without.workers


async def check_kept(store):
    """Check that the stored sums are those of the current attempts."""

    def compare(connection):
        for row in connection.execute(select(kept)).all():
            rows = [each._mapping for each in job_sums._sums_of(connection, row.job, row.piece)]
            assert dict(row._mapping) == pytest.approx({"job": row.job, "piece": row.piece, **job_sums._total(rows)})

    await store._read(compare)


async def windows_of(store, random):
    ends = await store._read(
        lambda connection: sorted(connection.scalars(select(attempts.c.ended_at).where(attempts.c.ended_at > 0)))
    )
    picked = [sorted(random.choices(ends, k=2)) for _ in range(4)] if ends else []
    return [(0.0, 1e12), (0.0, 1.0), (1.0, 1e12), *map(tuple, picked)]


@settings(PATIENT, max_examples=tried(1, 120))
@given(seed=st.integers(0, 10**6))
def test_sums_always_equal_the_sums_of_the_attempts(runner, seed):
    async def live(url: str) -> None:
        random, log = Random(seed), lived_through(seed, turns=40).store.log
        async with open_store(url) as store:
            scheduler = Scheduler()
            for number, line in enumerate(log):
                batch = BATCH.validate_json(line)
                if any(isinstance(event, MasterStarted) for event in batch.events):
                    scheduler = Scheduler(await store.snapshot())
                summing = asyncio.create_task(store.job_sums.sum_next())
                for _ in range(random.randrange(8)):
                    await asyncio.sleep(0)  # let the step start at any point of the summing
                await store.commit(batch, scheduler.step(batch.events, batch.now))
                await summing
                if number % 20 == 0:
                    await check_kept(store)
            windows = await windows_of(store, random)
            await check_usage(store, windows)
            await sum_up(store)
            await check_kept(store)
            await check_usage(store, windows)
            await check_windows(store, windows)

    with TemporaryDirectory() as folder:
        runner.run(live(f"sqlite:///{folder}/loopline.db"))


async def filled(store):
    """A job of five tasks in three pieces: with votes, a winning replica, failed and lost attempts."""
    over = {"state": JobState.SUCCEEDED, "started_at": 1.0, "finished_at": 90.0, "departure": 1, "succeeded": 5}
    done = [a_task(number, state=TaskState.SUCCEEDED) for number in range(1, 6)]
    await keep(store, a_job(1, 5, **over), a_worker("ant"), a_worker("bee"), *done)
    vote = {"accepted": False, "cpu_s": 2.0}
    await keep(
        store,
        an_attempt(1, number=1, **ended(ended_at=10.0, **vote)),
        an_attempt(1, number=2, worker="bee", replica=True, asked=True, **ended(ended_at=12.0, cpu_s=1.0)),
        an_attempt(2, number=1, state=AttemptState.LOST, assumed_cpu_ms=5000),
        an_attempt(2, number=2, worker="bee", replica=True, **ended(ended_at=20.0, wall_s=9.0)),
        an_attempt(3, number=1, **ended(state=AttemptState.FAILED, accepted=False, ended_at=30.0)),
        an_attempt(3, number=2, **ended(ended_at=40.0, started_at=2.0, wall_s=9.0)),
        an_attempt(5, number=1, worker="bee", dispatched_at=5.0, **ended(ended_at=80.0, started_at=6.0)),
    )


LATE = Result(AttemptId(1, 2, 1), Outcome.SUCCEEDED, 0, cpu_s=6.5)
"""The late result of the lost attempt, which is in the first piece."""
WINDOWS = [(0.0, 1e9), (0.0, 11.0), (11.0, 35.0), (20.0, 80.0), (81.0, 99.0)]


async def test_usage_is_the_same_on_either_database(url):
    async with open_store(url) as store:
        await filled(store)
        await keep(store, a_job(2, 2, owner="ben"), a_task(1, 2), an_attempt(1, 2, **ended(ended_at=15.0)))
        await check_usage(store, WINDOWS)
        await sum_up(store)
        assert await pieces(store) == [(1, 0), (1, 1), (1, 2)], "the second job has not ended"
        await check_kept(store)
        await check_usage(store, WINDOWS)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(job_sums, "LARGE", 3)
            await check_usage(store, WINDOWS)  # a large job beside a small one
        await check_windows(store, [*WINDOWS, (0.0, 201.0), (200.0, 201.0), (200.5, 300.0)])


async def test_late_result_invalidates_one_piece_across_a_restart(url):
    async with open_store(url) as store:
        await filled(store)
        await sum_up(store)
    async with open_store(url) as store:
        await keep(store, late=[("ant", LATE)])
        assert await pieces(store) == [(1, 1), (1, 2)]
        await check_usage(store, WINDOWS)
        await sum_up(store)
        assert len(await pieces(store)) == 3
        await check_kept(store)
        await check_usage(store, WINDOWS)


async def test_unfinished_pieces_are_not_summed(store):
    await keep(store, a_job(1, 4), a_task(1, state=TaskState.SUCCEEDED), a_task(2), an_attempt(1, **ended()))
    await sum_up(store)
    assert await pieces(store) == []
    await keep(store, a_task(2, state=TaskState.SUCCEEDED), an_attempt(2, state=AttemptState.CANCELLING), new=False)
    await sum_up(store)
    assert await pieces(store) == [], "an attempt is still being cancelled"
    await keep(store, an_attempt(2, **ended(state=AttemptState.CANCELLED)))
    await sum_up(store)
    assert await pieces(store) == [(1, 0)], "the other tasks have not started"


async def test_sums_are_deleted_with_the_attempts(url):
    async with open_store(url) as store:
        await filled(store)
        await sum_up(store)
        assert await store.shorten(1, 2, 500.0, await store.first_tasks(1))
        assert await pieces(store) == [(1, 0)]
        await check_kept(store)
        await check_usage(store, WINDOWS)
        await keep(store, forgotten_jobs=(1,))
        assert await pieces(store) == []
        assert not await store.job_sums.sum_next()


async def sum_while(store, change):
    """Sum a piece, and run this between reading its rows and storing the sum."""
    read = store.job_sums._read

    async def slow(work, **more):
        found = await read(work, **more)
        if getattr(work, "func", None) is job_sums._sums_of:
            store.job_sums._read = read
            await change
        return found

    store.job_sums._read = slow
    assert await store.job_sums.sum_next()
    await check_kept(store)


async def test_piece_deleted_while_it_is_summed_is_not_stored(store):
    await filled(store)
    await sum_while(store, store.shorten(1, 4, 500.0, await store.first_tasks(1)))


async def test_piece_changed_while_it_is_summed_is_not_stored(store):
    await filled(store)
    await sum_while(store, keep(store, late=[("ant", LATE)]))
    assert (1, 0) not in await pieces(store)


async def test_sum_includes_rows_that_are_still_being_written(store):
    await filled(store)
    go_on, write = threading.Event(), store.job_sums._write

    async def write_behind(work, **more):
        go_on.set()
        return await write(work, **more)

    store.job_sums._write = write_behind
    async with asyncio.TaskGroup() as under_way:
        under_way.create_task(write(lambda connection: go_on.wait(60)))
        under_way.create_task(keep(store, late=[("ant", LATE)]))
        await asyncio.sleep(0)  # let both reach the writer
        assert await store.job_sums.sum_next()
    assert await pieces(store) == [(1, 0)]
    await check_kept(store)


async def test_clock_correction_discards_the_sums(store):
    await filled(store)
    await sum_up(store)
    assert await store.set_clock_right(50.0)
    assert await pieces(store) == []
    await check_usage(store, WINDOWS)
