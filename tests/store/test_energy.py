"""Sums of energy: useful and wasted, by user, worker and job, also of jobs that are forgotten."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection, event

from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount
from loopline_master.core.wings.energy.attempt_energy import AttemptEnergy
from loopline_master.store import Store, open_store
from loopline_master.store.history.energy_sums import energy_by
from loopline_master.store.history.job_sums import LARGE
from loopline_shared.model import AttemptState
from loopline_shared.protocol.attempt_figures import EnergySource
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep

PACKAGE, GPU = EnergySource.PACKAGE, EnergySource.GPU
KWH = 3.6e6


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store in each kind of database."""
    async with open_store(url) as store:
        yield store


def of_wings(*energies, accounts=()):
    return {
        AttemptEnergy: {one.key: one for one in energies},
        CheckpointAccount: {one.id: one for one in accounts},
    }


async def test_energy_is_useful_if_the_result_counts(store):
    await keep(store, a_job(1, finished_at=300.0), a_task(1), a_task(2), a_worker("ant"))
    cut = {"state": AttemptState.FAILED, "accepted": False}
    await keep(
        store,
        an_attempt(1, number=1, **ended(cpu_s=8.0, **cut)),
        an_attempt(1, number=2, **ended(cpu_s=4.0)),
        an_attempt(2, number=1, **ended(cpu_s=5.0, accepted=False)),
        an_attempt(2, number=2, **ended(cpu_s=1.0)),
        of_wings=of_wings(
            AttemptEnergy(1, 1, 1, PACKAGE, 8.0 * KWH),
            AttemptEnergy(1, 1, 2, PACKAGE, 4.0 * KWH),
            AttemptEnergy(1, 1, 2, GPU, 2.0 * KWH),
            AttemptEnergy(1, 2, 1, PACKAGE, 5.0 * KWH),
            accounts=[CheckpointAccount(1, 1, 1, kept_cpu_ms=6000)],
        ),
    )
    found = {}
    for subject, name in (("user", "ann"), ("worker", "ant"), ("job", "1")):
        [line] = found[subject] = (await store.usage.by(subject, 0.0, 1e9, 9)).lines
        assert (line.subject, line.energy.by_source) == (name, {PACKAGE: 17.0, GPU: 2.0})
        assert line.energy.useful_kwh == pytest.approx(6.0 + 6.0), "a checkpoint kept six of eight kWh"
        assert line.energy.wasted_kwh == pytest.approx(2.0 + 5.0)
    assert (await store.jobs.detail(1)).energy == found["job"][0].energy
    [line] = (await store.usage.by("user", 205.0, 1e9, 9)).lines or [None]
    assert line is None or line.energy is None, "nothing ended since then"
    await keep(store, forgotten_jobs=(1,))
    for subject in ("user", "worker"):
        assert (await store.usage.by(subject, 0.0, 1e9, 9)).lines == found[subject]


async def test_lines_without_energy_have_none(store):
    await keep(store, a_job(1), a_task(1), a_worker("ant"), an_attempt(1, number=1, **ended()))
    [line] = (await store.usage.by("user", 0.0, 1e9, 9)).lines
    assert line.energy is None
    assert (await store.jobs.detail(1)).energy is None


async def test_large_job_has_its_energy_once_it_has_ended(store):
    large = {"task_count": LARGE}
    await keep(store, a_job(1, **large), a_task(1), a_worker("ant"))
    await keep(store, an_attempt(1, number=1, **ended()), of_wings=of_wings(AttemptEnergy(1, 1, 1, PACKAGE, KWH)))
    assert (await store.jobs.detail(1)).energy is None
    await keep(store, a_job(1, departure=2, **large))
    assert (await store.jobs.detail(1)).energy.useful_kwh == 1.0


async def test_lines_with_the_most_energy_come_first_and_the_total_has_all(store):
    await keep(store, a_job(1), a_job(2, owner="bob"), a_job(3, owner="eve"), a_worker("ant"), a_worker("bee"))
    await keep(store, *[a_task(1, job=job) for job in (1, 2, 3)])
    await keep(
        store,
        an_attempt(1, number=1, **ended(cpu_s=100.0)),
        an_attempt(1, job=2, number=1, **ended(cpu_s=5.0)),
        an_attempt(1, job=3, number=1, worker="bee", **ended(cpu_s=1.0)),
        of_wings=of_wings(AttemptEnergy(2, 1, 1, GPU, 50.0 * KWH), AttemptEnergy(3, 1, 1, PACKAGE, 60.0 * KWH)),
    )
    for subject, subjects in (("user", ["eve", "bob", "ann"]), ("worker", ["bee", "ant"]), ("job", ["3", "2", "1"])):
        for limit in range(1, len(subjects) + 1):
            report = await store.usage.by(subject, 0.0, 1e9, limit, "energy")
            assert [line.subject for line in report.lines] == subjects[:limit]
            assert report.energy.by_source == {GPU: 50.0, PACKAGE: 60.0}
            assert report.energy.useful_kwh == 110.0
        [line] = (await store.usage.by(subject, 0.0, 1e9, 1)).lines
        assert line.subject in {"ann", "ant", "1"}, "it used the most CPU time"


async def test_energy_of_a_window_is_found_by_the_index_on_the_end(sqlite_url):
    async with open_store(sqlite_url) as store:
        await keep(store, a_job(1), a_task(1), a_worker("ant"))
        await keep(store, an_attempt(1, number=1, **ended()), of_wings=of_wings(AttemptEnergy(1, 1, 1, PACKAGE, KWH)))
        statements: list[tuple[str, tuple[object, ...]]] = []

        def read(connection: Connection) -> list[str]:
            event.listen(connection, "before_cursor_execute", lambda *seen: statements.append((seen[2], seen[3])))
            energy_by(connection, "user", 100.0, 1e9, is_by_key=False)
            explained = [(f"EXPLAIN QUERY PLAN {sql}", values) for sql, values in statements]
            return [row[-1] for query in explained for row in connection.exec_driver_sql(*query)]

        assert any("ix_attempts_ended_at" in step for step in await store._read(read))
