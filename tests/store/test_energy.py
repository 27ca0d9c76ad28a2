"""Sums of energy: useful and wasted, by user, worker and job, also of jobs that are forgotten."""

import pytest

from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount
from loopline_master.core.wings.energy.attempt_energy import AttemptEnergy
from loopline_shared.model import AttemptState
from loopline_shared.protocol.attempt_figures import EnergySource
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep

PACKAGE, GPU = EnergySource.PACKAGE, EnergySource.GPU
KWH = 3.6e6


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
        [line] = found[subject] = await store.usage.by(subject, 0.0, 1e9, 9)
        assert (line.subject, line.energy.by_source) == (name, {PACKAGE: 17.0, GPU: 2.0})
        assert line.energy.useful_kwh == pytest.approx(6.0 + 6.0), "a checkpoint kept six of eight kWh"
        assert line.energy.wasted_kwh == pytest.approx(2.0 + 5.0)
    [line] = await store.usage.by("user", 205.0, 1e9, 9) or [None]
    assert line is None or line.energy is None, "nothing ended since then"
    await keep(store, forgotten_jobs=(1,))
    for subject in ("user", "worker"):
        assert await store.usage.by(subject, 0.0, 1e9, 9) == found[subject]


async def test_lines_without_energy_have_none(store):
    await keep(store, a_job(1), a_task(1), a_worker("ant"), an_attempt(1, number=1, **ended()))
    [line] = await store.usage.by("user", 0.0, 1e9, 9)
    assert line.energy is None
