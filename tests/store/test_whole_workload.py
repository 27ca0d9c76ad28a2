"""Whole lives of masters, written to a real store and read back without a change."""

from loopline_master.store import open_store
from loopline_master.store.replay import check
from tests.store.workload import lived_through, relive


async def test_rows_restore_the_scheduler_and_the_log_restores_the_rows(url):
    world = lived_through(10)
    async with open_store(url) as store:
        await relive(store, world.store.log)
        found, expected = await store.snapshot(), world.store.snapshot()
        report = await store.passings(world.settings)
    found.grid.now = expected.grid.now  # a step without changes is not logged
    assert found.grid == expected.grid
    for part in ("jobs", "tasks", "attempts", "workers", "programs"):
        assert sorted(map(repr, getattr(found, part))) == sorted(map(repr, getattr(expected, part))), part
    assert found.started == {job: ranges for job, ranges in expected.started.items() if ranges}
    assert report.completions > 0
    assert report.passings == len(world.store.passings) == 0
    assert await check(url) == []
