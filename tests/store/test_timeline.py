"""Time windows on either database: their attempts, filters, and the limit to the latest ones."""

from dataclasses import replace

import pytest

from loopline_master.store import open_store
from loopline_master.store.queries.timeline_queries import Chosen
from loopline_shared.model import AttemptState
from tests.store.examples import a_job, a_task, an_attempt, ended, keep


@pytest.fixture
async def store(url):
    async with open_store(url) as store:
        yield store


@pytest.fixture
async def filled(store):
    """Attempts 1.1.1 (10 to 20), 1.2.1 (15 until now), 1.3.1 (30 to 40), 2.1.1 (12 to 90, on bee)."""
    await keep(store, a_job(1), a_job(2, owner="ben"), *(a_task(n) for n in (1, 2, 3)), a_task(1, job=2))
    await keep(
        store,
        an_attempt(1, dispatched_at=10.0, **ended(ended_at=20.0, started_at=11.0)),
        an_attempt(2, dispatched_at=15.0, state=AttemptState.FROZEN, freezes=((16.0, 17.5), (18.0, None))),
        an_attempt(3, dispatched_at=30.0, replica=True, **ended(ended_at=40.0)),
        an_attempt(1, job=2, worker="bee", dispatched_at=12.0, ended_at=90.0),
    )
    return store


def named(window):
    return [f"{row.job}.{row.task}" for row in window.bars]


async def test_window_contains_the_attempts_that_overlap_it(filled):
    async def seen(since, until, limit=10, **filters):
        return named(await filled.timelines.window(since, until, limit=limit, of=Chosen(**filters)))

    assert await seen(0.0, 100.0) == ["1.1", "2.1", "1.2", "1.3"]
    assert await seen(0.0, 12.0) == ["1.1"], "the window excludes its end"
    assert await seen(20.0, 30.0) == ["1.1", "2.1", "1.2"], "the window includes its start"
    assert await seen(21.0, 31.0) == ["2.1", "1.2", "1.3"]
    assert await seen(95.0, 99.0) == ["1.2"]
    assert await seen(0.0, 100.0, worker="bee") == ["2.1"]
    assert await seen(0.0, 100.0, job=1) == ["1.1", "1.2", "1.3"]
    assert await seen(21.0, 31.0, job=1, worker="ant") == ["1.2", "1.3"]
    assert await seen(0.0, 100.0, owner="ben") == ["2.1"]


async def test_window_beyond_its_limit_contains_the_latest_attempts(filled):
    window = await filled.timelines.window(0.0, 100.0, limit=3)
    assert (named(window), window.truncated) == (["2.1", "1.2", "1.3"], True)
    assert not (await filled.timelines.window(0.0, 100.0, limit=4)).truncated


async def test_bar_has_the_fields_of_its_attempt(filled):
    window = await filled.timelines.window(0.0, 100.0, limit=10)
    assert window.names == {1: "job 1", 2: "job 2"}
    one, _, frozen, copy = window.bars
    assert (one.worker, one.state, one.accepted, one.dispatched_at, one.started_at, one.ended_at) == (
        "ant", "succeeded", 1, 10.0, 11.0, 20.0,
    )  # fmt: skip
    assert [row.freezes for row in window.bars if row is not frozen] == ["[]"] * 3
    assert frozen.freezes.replace(" ", "") == "[[16.0,17.5],[18.0,null]]"
    assert (one.replica, copy.replica) == (0, 1)
    vote = ended(ended_at=40.0, accepted=False)
    asked, first = an_attempt(2, number=3, asked=True, **vote), an_attempt(2, number=2, **vote)
    await keep(filled, *(replace(one, dispatched_at=51.0) for one in (asked, first)))
    votes = (await filled.timelines.window(51.0, 52.0, limit=10)).bars
    assert [row.accepted for row in votes if row.number > 1] == [1, 1], (
        "all votes of a quorum count as accepted, including the first"
    )
    assert [row.wall_s for row in window.bars] == [one.wall_s, 0.0, 0.0, copy.wall_s]


async def test_holds_of_last_tasks_are_listed(store):
    held = a_job(1, held_at=10.0)
    await keep(
        store,
        held,
        a_job(2, held_at=20.0, released_at=30.0),
        a_job(3),
        a_job(4, held_at=25.0, finished_at=28.0),  # cancelled during its hold
    )

    async def seen(since, until, **filters):
        window = await store.timelines.window(since, until, limit=10, of=Chosen(**filters))
        return [tuple(row) for row in window.held]

    assert await seen(0.0, 99.0) == [(1, 10.0, None), (2, 20.0, 30.0), (4, 25.0, 28.0)]
    assert await seen(29.0, 99.0) == [(1, 10.0, None), (2, 20.0, 30.0)]
    assert await seen(0.0, 20.0) == [(1, 10.0, None)]
    assert await seen(0.0, 99.0, job=2) == [(2, 20.0, 30.0)]
    assert await seen(0.0, 99.0, worker="ant") == []
    window = await store.timelines.window(0.0, 99.0, limit=10)
    assert window.names == {1: "job 1", 2: "job 2", 4: "job 4"}
    await keep(store, replace(held, released_at=40.0), new=False)
    assert (await seen(0.0, 99.0))[0] == (1, 10.0, 40.0)


async def test_names_of_many_jobs_are_loaded_in_batches(store, monkeypatch):
    monkeypatch.setattr("loopline_master.store.queries.timeline_queries._NAMES_AT_ONCE", 2)
    await keep(store, *(a_job(n, held_at=1.0) for n in range(1, 6)))
    assert len((await store.timelines.window(0.0, 9.0, limit=10)).names) == 5
