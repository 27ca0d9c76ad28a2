"""A running master samples the scheduler's invariants; a violation is logged and counted, and work continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

import pytest

from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_master.core.kernel.state import State
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_master.metrics import metrics
from tests.api.bench import Bench, until


@pytest.fixture(autouse=True)
def _a_sample_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "INVARIANT_SAMPLE_EVERY_S", 0.0)


async def values_of(master: Bench) -> dict[str, str]:
    text = (await master.ask("GET", "//metrics")).content.decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


async def counts(master: Bench) -> tuple[float, float]:
    values = await values_of(master)
    return float(values["loopline_invariant_samples_total"]), float(values["loopline_invariant_breaches_total"])


async def test_sampling_a_sound_scheduler_finds_no_violation(master: Bench) -> None:
    job = await master.submit(parameters={"i": {"range": [1, 5]}})
    async with master.worker(slots=2):
        await until(lambda: _is_over(master, job))
    samples, breaches = await counts(master)
    assert samples > 0
    assert breaches == 0


def a_task_that_was_never_started_is_forgotten(state: State, job: int) -> None:
    state.fresh[job] = IntervalSet()


def a_slot_is_counted_twice(state: State, job: int) -> None:
    state.index.attempts.used["w1"] += 1


def an_attempt_is_over_but_kept(state: State, job: int) -> None:
    next(attempt for attempt in state.attempts.values() if attempt.job == job).ended_at = 1.0


def a_worker_is_in_quarantine_for_no_reason(state: State, job: int) -> None:
    state.workers["w1"].quarantined_until = 1e12


@pytest.mark.parametrize(
    "plant",
    [
        a_task_that_was_never_started_is_forgotten,
        a_slot_is_counted_twice,
        an_attempt_is_over_but_kept,
        a_worker_is_in_quarantine_for_no_reason,
    ],
)
async def test_violation_is_logged_and_counted(
    master: Bench, caplog: pytest.LogCaptureFixture, plant: Callable[[State, int], None]
) -> None:
    job = await master.submit(parameters={"i": {"range": [1, 5]}}, max_replicas=1)
    async with master.worker(slots=2, does=lambda run: None) as worker:
        await until(lambda: _has_begun(worker))
        samples, breaches = await counts(master)
        assert (samples > 0, breaches) == (True, 0)
        plant(master.parts[Scheduler].state, job)
        with caplog.at_level(logging.ERROR):
            sampler = master.parts[metrics.InvariantSampler]
            sampler.sample()
        after = await counts(master)  # a step of the engine may have sampled it too
        assert after[0] > samples
        assert after[1] > 0
        assert "breaks an invariant" in caplog.text


@pytest.mark.parametrize("is_broken", [False, True])
async def test_metrics_count_starts_beyond_a_limit(
    master: Bench, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    assert (await master.ask("PUT", "/limits/matlab", json={"units": 1})).status == 200
    if is_broken:
        monkeypatch.setattr(CountedUnits, "spare", lambda counts, of, user: inf)
    async with master.worker(slots=2, does=lambda run: None) as worker:
        await master.submit(parameters={"i": {"range": [1, 3]}}, requires={"needs": {"matlab": 1}})
        await until(lambda: _has_begun(worker, 1 + is_broken))
        values = await values_of(master)
        used, allowed = (values[f'loopline_limit_units{part}{{limit="matlab"}}'] for part in ("_used", ""))
        assert (float(used), float(allowed)) == (1 + is_broken, 1)
        starts, beyond = (float(values[f"loopline_unit_starts{part}"]) for part in ("", "_beyond_limit"))
        assert (starts, beyond) == (1 + is_broken, is_broken)


async def _has_begun(worker: object, count: int = 2) -> bool:
    return len(worker.holding) == count  # type: ignore[attr-defined]


async def _is_over(master: Bench, job: int) -> bool:
    return (await master.get(f"/jobs/{job}"))["finished_at"] is not None
