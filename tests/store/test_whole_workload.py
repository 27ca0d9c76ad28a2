"""Whole lives of masters, written to a real store: nothing is lost or changed on the way there and back."""

from loopline_master.store import open_store
from loopline_master.store.replay import check
from tests.store.workload import lived_through, relive


async def test_rows_lead_back_to_the_same_scheduler_and_the_log_to_the_same_rows(url):
    world = lived_through(10)
    async with open_store(url) as store:
        await relive(store, world.store.log)
        found, expected = await store.snapshot(), world.store.snapshot()
        report = await store.passings(world.settings)
    found.grid.now = expected.grid.now  # a step that changed nothing leaves no trace
    assert found.grid == expected.grid
    for part in ("jobs", "tasks", "attempts", "workers", "programs"):
        assert sorted(map(repr, getattr(found, part))) == sorted(map(repr, getattr(expected, part))), part
    assert found.started == {job: ranges for job, ranges in expected.started.items() if ranges}
    assert report.completions > 0
    assert report.passings == len(world.store.passings) == 0
    assert await check(url) == []
