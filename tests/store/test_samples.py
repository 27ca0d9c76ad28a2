"""One sample per worker and minute, in the commit of its report, on either database."""

import pytest
from sqlalchemy import func, select
from sqlalchemy.dialects import sqlite

from loopline_master.core.events import Batch
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Grid
from loopline_master.store import open_store, records, tables
from loopline_shared.model import AttemptState, Load
from tests.store.examples import a_job, a_task, a_worker, an_attempt, keep

MINUTE = 60.0


@pytest.fixture
async def store(url):
    async with open_store(url, keep_samples_s=30 * MINUTE) as store:
        yield store


async def reported(store, at, *names, spare_cpu=2.0, slots=4, **load):
    """A step in which these workers reported."""
    said = Load(slots, spare_cpu, **load)
    workers = [a_worker(name, session=1, load=said, reported_at=at, offered=slots) for name in names]
    await store.commit(Batch(at), Effects(Grid(now=at), workers={worker.name: worker for worker in workers}))


async def points(store, since, until, worker=None, points=1000):
    found = await store.samples.between(since * MINUTE, until * MINUTE, worker=worker, points=points)
    return [
        (at / MINUTE, *rest)
        for at, *rest in zip(
            found.at, found.workers, found.spare_cpu, found.slots, found.used, found.in_use, found.frozen, strict=True
        )
    ]


async def test_first_report_of_each_minute_is_sampled(store):
    await reported(store, 100 * MINUTE + 1, "ant", spare_cpu=1.5)
    await reported(store, 100 * MINUTE + 20, "ant", spare_cpu=9.0)
    await reported(store, 101 * MINUTE, "ant", spare_cpu=2.5, in_use=True)
    assert await points(store, 0, 200, "ant") == [(100, 1, 1.5, 4, 0, 0, 0), (101, 1, 2.5, 4, 0, 1, 0)]
    assert await points(store, 101, 102, "ant") == [(101, 1, 2.5, 4, 0, 1, 0)]
    assert await points(store, 0, 200, "bee") == []


async def test_reports_of_many_workers_in_one_step_are_sampled(store):
    await reported(store, 600.0, "ant", "bee", "cat")
    assert await points(store, 0, 20) == [(10, 3, 6.0, 12, 0, 0, 0)]
    await reported(store, 600.5, "ant", "bee", "dog")
    assert await points(store, 0, 20) == [(10, 4, 8.0, 16, 0, 0, 0)]


async def test_worker_changed_without_a_report_is_not_sampled(store):
    worker = a_worker("ant", session=None, load=Load(4), reported_at=99 * MINUTE)
    await store.commit(Batch(100 * MINUTE), Effects(Grid(now=100 * MINUTE), workers={"ant": worker}))
    assert await points(store, 0, 200) == []


async def test_slots_in_use_are_those_of_the_rows_committed_with_it(store):
    await keep(store, a_job(), a_task(1), a_task(2), a_task(3))
    states = [AttemptState.FROZEN, AttemptState.DISPATCHED, AttemptState.SUCCEEDED]
    attempts = [an_attempt(n, slots=n, state=state) for n, state in enumerate(states, start=1)]
    worker = a_worker("ant", session=1, load=Load(4), reported_at=600.0, offered=4)
    effects = Effects(Grid(now=600.0), workers={"ant": worker}, attempts={a.id: a for a in attempts})
    await store.commit(Batch(600.0), effects)
    assert await points(store, 0, 20, "ant") == [(10, 1, 0, 4, 3, 0, 1)]


async def test_prefetched_attempts_do_not_count_as_slots_in_use(store):
    """One of four attempts is frozen in the slot; three are prefetched, and one of them is being retracted."""
    await keep(store, a_job(), *(a_task(number) for number in range(1, 5)))
    states = [AttemptState.FROZEN, AttemptState.PREFETCHED, AttemptState.PREFETCHED, AttemptState.RETRACTING]
    attempts = [an_attempt(n, state=state) for n, state in enumerate(states, start=1)]
    worker = a_worker("ant", session=1, load=Load(1), reported_at=600.0, offered=1)
    effects = Effects(Grid(now=600.0), workers={"ant": worker}, attempts={a.id: a for a in attempts})
    await store.commit(Batch(600.0), effects)
    assert await points(store, 0, 20, "ant") == [(10, 1, 0, 1, 1, 0, 1)]
    assert (await store.workers.detail("ant")).slots_used == 1, "the list of workers shows the same"


async def test_samples_of_the_grid_are_sums_and_long_intervals_means(store):
    for minute in range(10):
        await reported(store, minute * MINUTE, "ant", spare_cpu=1.0 + minute)
        if minute < 6:
            await reported(store, minute * MINUTE + 1, "bee", spare_cpu=10.0)
    assert await points(store, 5, 7) == [(5, 2, 16.0, 8, 0, 0, 0), (6, 1, 7.0, 4, 0, 0, 0)]
    assert await points(store, 0, 10, points=2) == [(0, 2, 13.0, 8, 0, 0, 0), (5, 1.2, 10.0, 4.8, 0, 0, 0)]
    found = await store.samples.between(0.0, 600.0, points=3)
    assert (found.every_s, found.at) == (240.0, [0.0, 240.0, 480.0])


async def test_each_worker_has_its_own_means_with_gaps(store):
    for minute in range(6):
        await reported(store, minute * MINUTE, "ant", spare_cpu=1.0 + minute)
    await reported(store, 4 * MINUTE + 1, "bee", spare_cpu=10.0)
    found = await store.samples.by_worker(0.0, 6 * MINUTE, points=3)
    assert (found.since, found.every_s, found.points, found.workers) == (0.0, 120.0, 3, ["ant", "bee"])
    assert found.spare_cpu == [[1.5, 3.5, 5.5], [None, None, 10.0]]
    assert found.used == [[0, 0, 0], [None, None, 0]]


async def test_minute_sampled_before_a_restart_is_not_sampled_again(url):
    for spare_cpu in (1.0, 2.0):
        async with open_store(url) as store:
            await reported(store, 300.0, "ant", spare_cpu=spare_cpu)
            assert await points(store, 0, 10, "ant") == [(5, 1, 1.0, 4, 0, 0, 0)]


async def test_old_samples_are_deleted_in_small_steps(store):
    async def kept():
        return await store._read(lambda c: c.scalar(select(func.count()).select_from(tables.samples)))

    for minute in range(40):
        await reported(store, minute * MINUTE, "ant")
    assert await kept() == 31
    await reported(store, 1000 * MINUTE, "ant")
    assert await kept() == 22, "ten minutes in one step"
    for minute in range(1001, 1004):
        await reported(store, minute * MINUTE, "ant")
    assert await kept() == 4


async def test_workers_with_reports_kept_back_are_sampled(store):
    await reported(store, 600.0, "ant", spare_cpu=1.0)
    loads = [(a_worker(name, session=1, offered=4), Load(4, 2.0)) for name in ("ant", "bee")]
    await store.sample(loads, 610.0)
    assert await points(store, 0, 20) == [(10, 2, 3.0, 8, 0, 0, 0)]
    await store.sample(loads, 670.0)
    assert await points(store, 11, 12) == [(11, 2, 4.0, 8, 0, 0, 0)]


async def test_slots_of_a_worker_are_counted_by_the_index_of_live_attempts(sqlite_url):
    async with open_store(sqlite_url) as store:
        for sums in (records._used, records._frozen):
            query = sums.element.params(of_worker="ant")
            sql = query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
            plan = await store._read(
                lambda connection, sql=sql: connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}").all()
            )
            assert "ix_attempts_live (worker=?)" in plan[0][-1]
