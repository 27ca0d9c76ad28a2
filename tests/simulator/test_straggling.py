"""Attempts of heavy-tailed times, relaunched after a delay: against the law's own integrals."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from loopline_shared.model import AttemptId, AttemptState, Order
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.straggling import Straggling
from loopline_simulator.fast.trial import Case, record, run
from loopline_simulator.fast.workload import Sizes, Workload, misdeclared
from loopline_simulator.study import bars
from loopline_simulator.study.section import measured
from loopline_simulator.study.sections import stragglers

TASKS, SIZE = 6, 100.0
ALONE = Workload(1, TASKS, SIZE, largest=SIZE)
PARK = Park(2 * TASKS, (1.0,), (), fit=1.0)


def case_of(straggling: Straggling, seed: int = 1) -> Case:
    return Case(seed, "first-come", Order.NONE, ALONE, PARK, straggling=straggling)


def test_factors_follow_the_law() -> None:
    law = Straggling(3.0)
    drawn = [law.factor(1, AttemptId(1, task, 1)) for task in range(1, 5001)]
    assert fmean(drawn) == pytest.approx(1.0, abs=0.03)
    assert min(drawn) >= law.least
    for factor in (0.8, 1.5, 3.0):
        assert fmean(one > factor for one in drawn) == pytest.approx(law.beyond(factor), abs=0.02)


@pytest.mark.parametrize("relaunch_after", [math.inf, 1.0])
def test_times_and_cost_of_a_job_alone_are_those_of_the_law(relaunch_after: float) -> None:
    law = Straggling(5.0, relaunch_after=relaunch_after)
    at = np.arange(0.0, 60.0, 0.002)
    cost = float(np.trapezoid([law.task_beyond(factor) for factor in at], at))
    runs = [measured(case_of(law, seed)) for seed in range(1001, 1251)]
    assert fmean(one["spent"] for one in runs) == pytest.approx(cost, rel=0.03)
    for factor in (1.1, 1.5, 2.2):
        share = 1 - (1 - law.task_beyond(factor)) ** TASKS
        assert fmean(one["total"] > factor * SIZE for one in runs) == pytest.approx(share, abs=0.07)


def test_straggler_is_relaunched_once_at_its_time() -> None:
    recorder, _ = record(case_of(Straggling(2.0, relaunch_after=0.7)), attempts=True)
    first = {one.id.task: one for one in recorder.attempts if one.id.number == 1}
    late = {task for task, one in first.items() if not one.accepted}
    assert late
    assert late < set(range(1, TASKS + 1))
    for task in late:
        assert first[task].end - first[task].start == pytest.approx(0.7 * SIZE)
    second = [one for one in recorder.attempts if one.id.number == 2]
    assert {one.id.task for one in second} == late
    assert all(one.state is AttemptState.SUCCEEDED for one in second)
    assert not [one for one in recorder.attempts if one.id.number > 2]


def test_attempt_takes_as_long_under_every_policy() -> None:
    """So that a comparison is one of policies, not of luck."""
    law = Straggling(2.0)
    one, other = (
        run(Case(1, policy, Order.NONE, ALONE, PARK, max_replicas=1, straggling=law)).measures.total.mean
        for policy in ("first-come", "fair")
    )
    assert one == other


def test_sections_picture_is_drawn_against_the_work_spent(tmp_path: Path) -> None:
    section = stragglers()
    section.seeds.append(1)
    section.answers.update({place: [{"total": 2.0, "spent": 1.0}] for place in section.cases})
    drawn = {file.suffix: file for file in bars.draw(section, tmp_path)}
    assert drawn.keys() == {".pdf", ".png", ".svg"}
    assert "relaunch after" in drawn[".svg"].read_text()


def test_sizes_in_the_opposite_order() -> None:
    exact = Workload(5, 3, sizes=Sizes.LOG_UNIFORM).of(2)
    wrong = misdeclared(exact, math.inf, 2)
    declared, true = (
        [sum(task.size or 0.0 for task in each.spec.tasks or ()) for each in jobs] for jobs in (wrong, exact)
    )
    assert sorted(range(5), key=declared.__getitem__) == sorted(range(5), key=true.__getitem__, reverse=True)
    assert [size * each.scale for size, each in zip(declared, wrong, strict=True)] == pytest.approx(true)
