"""The master's measurements of itself: step times charged to users, how long they are kept, growth of data."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Grid
from loopline_master.core.kernel.state import State
from loopline_master.core.snapshot import Snapshot
from loopline_master.metrics.growth import _bytes_below
from loopline_master.metrics.latest_steps import LatestSteps
from loopline_master.metrics.user_costs import NOBODY, Cost, UserCosts
from tests.store.examples import a_job, a_task, an_attempt

NOWHERE = State(Snapshot())


def effects_of(*entities: object) -> Effects:
    effects = Effects(Grid())
    for kind, found in (("jobs", effects.jobs), ("tasks", effects.tasks), ("attempts", effects.attempts)):
        found.update({one.id: one for one in entities if type(one).__name__.lower() + "s" == kind})
    return effects


def test_step_time_is_charged_to_owners_of_changed_rows() -> None:
    costs = UserCosts(lambda: 0.0)
    effects = effects_of(a_job(1, owner="ann"), a_task(), an_attempt(), a_job(2, owner="ben"))
    assert costs.charge_step(effects, NOWHERE, 8.0) == {"ann": 6.0, "ben": 2.0}
    assert costs.charge_step(effects_of(), NOWHERE, 1.0) == {NOBODY: 1.0}
    costs.count_request("ben")
    assert costs.last_hour() == {"ann": Cost(6.0, 0), "ben": Cost(2.0, 1), NOBODY: Cost(1.0, 0)}


def test_costs_are_dropped_after_an_hour() -> None:
    minutes = iter((0, 59, 59, 60, 60))
    costs = UserCosts(lambda: next(minutes) * 60.0)
    costs.count_request("ann")
    costs.count_request("ben")
    assert set(costs.last_hour()) == {"ann", "ben"}
    costs.count_request("ben")
    assert costs.last_hour() == {"ben": Cost(0.0, 2)}


def test_view_shows_median_and_slowest_of_the_latest_steps() -> None:
    steps = LatestSteps()
    assert steps.view().step is None
    for number in range(1, 101):
        steps.add(number / 1e3, number / 1e4, number % 7)
    view = steps.view()
    assert view.step
    assert view.commit
    assert (view.count, view.step.p50_s, view.step.p99_s, view.step.most_s) == (100, 0.05, 0.099, 0.1)
    assert (view.commit.most_s, view.waiting, view.most_waiting) == (0.01, 2, 6)


def test_prometheus_counts_all_steps_and_the_view_the_latest() -> None:
    registry = CollectorRegistry()
    steps = LatestSteps(registry)
    for number in range(2500):
        steps.add(0.001 if number < 2400 else 7.0, 0.004, number)
    samples = [sample for family in registry.collect() for sample in family.samples]
    found = {f"{one.name} {one.labels.get('le', '')}".strip(): one.value for one in samples}
    assert [found[f"loopline_step_seconds_bucket {bound}"] for bound in ("0.001", "5.0", "+Inf")] == [
        2400,
        2400,
        2500,
    ]
    assert [found[f"loopline_commit_seconds_bucket {bound}"] for bound in ("0.002", "0.005")] == [0, 2500]
    assert (found["loopline_step_seconds_count"], found["loopline_events_waiting"]) == (2500, 2499)
    assert found["loopline_step_seconds_sum"] == pytest.approx(702.4)
    assert steps.view().count == 1000


def test_size_of_a_folder_includes_all_files_below_it(tmp_path) -> None:
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "one").write_bytes(b"12345")
    (tmp_path / "two").write_bytes(b"678")
    assert _bytes_below(tmp_path) == 8
    assert _bytes_below(tmp_path / "gone") == 0
