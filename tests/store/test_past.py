"""The past for archives and measures, on either database."""

import pytest

from loopline_master.core.events import Batch
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Grid
from loopline_master.store.history import past_queries
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, Load
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep

MINUTE = 60.0


def over(number=1, **changes):
    times = {"submitted_at": 100.0, "started_at": 130.0, "finished_at": 190.0, "departure": number}
    return a_job(number, **{**times, "state": JobState.SUCCEEDED, **changes})


async def past(store, since=0.0, until=1e9, cursor=None, limit=100):
    return await store.past.jobs(since, until, cursor, limit)


async def test_past_job_has_the_sums_of_the_attempts_that_count(store):
    await keep(store, over(), a_worker("ant"), a_task(1), a_task(2))
    await keep(
        store,
        an_attempt(1, number=1, slots=2, **ended(wall_s=10.0, cpu_s=8.0, accepted=False)),
        an_attempt(1, number=2, slots=2, **ended(wall_s=3.0, cpu_s=2.0, peak_memory_bytes=7)),
        an_attempt(2, number=1, slots=2, **ended(wall_s=5.0, cpu_s=4.0, peak_memory_bytes=9)),
    )
    [job] = (await past(store)).items
    assert (job.id, job.user, job.name, job.state) == (1, "ann", "job 1", JobState.SUCCEEDED)
    assert (job.task_count, job.nodes, job.slots, job.results) == (3, 1, 2, 2)
    assert (job.wall_s, job.cpu_s, job.peak_memory_bytes) == (8.0, 6.0, 9)
    assert (job.submitted_at, job.started_at, job.finished_at) == (100.0, 130.0, 190.0)


async def test_past_jobs_ended_within_the_window(store):
    cancelled = over(3, state=JobState.CANCELLED, started_at=None, finished_at=500.0)
    await keep(store, over(1), over(2, finished_at=300.0), cancelled, a_job(4))
    assert [job.id for job in (await past(store)).items] == [1, 2, 3]
    assert [job.id for job in (await past(store, 190.0, 300.0)).items] == [1]
    assert [job.id for job in (await past(store, 191.0, 501.0)).items] == [2, 3]
    never = (await past(store, 400.0)).items[0]
    assert (never.results, never.wall_s, never.started_at) == (0, 0.0, None)


async def test_pages_are_bounded_by_jobs_and_by_their_tasks(store, monkeypatch):
    await keep(store, *(over(number) for number in range(1, 6)))

    async def pages(limit):
        found, cursor = [], None
        while True:
            page = await past(store, cursor=cursor, limit=limit)
            found.append([job.id for job in page.items])
            cursor = page.next
            if cursor is None:
                return found

    assert await pages(2) == [[1, 2], [3, 4], [5]]
    monkeypatch.setattr(past_queries, "_MOST_TASKS", 4)  # each job has three
    assert await pages(100) == [[1], [2], [3], [4], [5]]
    with pytest.raises(LooplineError, match="cursor"):
        await past(store, cursor="x")


async def _reported(store, minute, *names, slots=4):
    load = Load(slots, 2.0)
    at = minute * MINUTE
    workers = [a_worker(name, session=1, load=load, reported_at=at, offered=slots) for name in names]
    await store.commit(Batch(at), Effects(Grid(now=at), workers={worker.name: worker for worker in workers}))


async def test_stays_are_minutes_without_a_gap(store):
    for minute, names in ((10, ["ant", "bee"]), (11, ["ant"]), (12, ["ant", "bee"]), (20, ["ant"])):
        await _reported(store, minute, *names)

    def shown(page):
        return [(stay.worker, stay.since / MINUTE, stay.until / MINUTE) for stay in page.items]

    page = await store.past.stays(0.0, 1e6, None, 1)
    assert shown(page) == [("ant", 10, 13), ("ant", 20, 21)]
    page = await store.past.stays(0.0, 1e6, page.next, 1)
    assert shown(page) == [("bee", 10, 11), ("bee", 12, 13)]
    assert page.next is None
    assert shown(await store.past.stays(11 * MINUTE, 12 * MINUTE, None, 9)) == [("ant", 11, 12)]


async def test_parallel_jobs_are_measured_against_their_nodes(store):
    waits = {1: (2, 20.0), 2: (4, 40.0), 3: (4, 60.0), 4: (8, 90.0)}
    jobs = [over(n, nodes=nodes, started_at=100.0 + wait) for n, (nodes, wait) in waits.items()]
    await keep(store, *jobs, over(5, started_at=5000.0), a_worker("ant"), *(a_task(1, n) for n in range(1, 6)))
    times = {"started_at": 120.0, "ended_at": 220.0}
    await keep(
        store,
        an_attempt(1, 1, 1, slots=2, **ended(**times)),
        an_attempt(1, 1, 2, slots=2, **ended(**times, accepted=False)),
        an_attempt(1, 5, 1, **ended(**times)),
    )
    for minute in (2, 3):
        await _reported(store, minute, "ant", "bee")
    report = await store.past.parallel(0.0, 1e6)
    assert (report.jobs, report.truncated, report.mean_wait_s) == (4, False, 52.5)
    assert report.offered_s == 2 * 2 * 4 * MINUTE
    assert report.parallel_s == 2 * 2 * 100.0
    assert report.s_per_node == pytest.approx(215 / 19)
    assert report.correlation == pytest.approx(215 / (19 * 2675) ** 0.5)
    assert [(one.nodes, one.jobs, one.mean_wait_s, one.longest_wait_s) for one in report.waits] == [
        (2, 1, 20.0, 20.0), (4, 2, 50.0, 60.0), (8, 1, 90.0, 90.0),
    ]  # fmt: skip
    assert (await store.past.parallel(200.0, 210.0)).parallel_s == 2 * 2 * 10.0


async def test_grid_without_parallel_jobs_has_no_line(store):
    await keep(store, over(1))
    report = await store.past.parallel(0.0, 1e6)
    assert (report.jobs, report.mean_wait_s, report.s_per_node, report.waits) == (0, None, None, [])
    await keep(store, *(over(n, nodes=3, started_at=150.0) for n in (2, 3)))
    report = await store.past.parallel(0.0, 1e6)
    assert (report.mean_wait_s, report.s_per_node, report.correlation) == (50.0, None, None)
