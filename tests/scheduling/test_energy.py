"""The wing *energy*: it notes joules of results as rows, and sleeps where no worker measures or declares any."""

from dataclasses import replace

from loopline_master.core.wings.energy.attempt_energy import AttemptEnergy
from loopline_master.core.wings.energy.energy_wing import MOST_WATTS, Energy
from loopline_master.metrics.metrics import Metrics
from loopline_shared.model import AttemptId, JobState, Outcome
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.rest.bodies import PassingReport
from tests.scheduling.driver import Grid, facts, result

DECLARED, GPU = EnergySource.DECLARED, EnergySource.GPU
MEASURING = replace(facts(2), energy=(DECLARED, GPU))


def test_joules_of_results_become_rows() -> None:
    grid, metrics = Grid(), Metrics()
    grid.join("ant", MEASURING)
    job = grid.submit(2)
    first, second = grid.running("ant")
    grid.now += 10.0
    effects = grid.end(first, joules={DECLARED: 40.0, GPU: 500.0}, wall_s=5.0, cpu_s=5.0)
    metrics.count(effects)
    key = (*first, DECLARED)
    assert effects.rows(AttemptEnergy)[key] == AttemptEnergy(job, 1, 1, DECLARED, 40.0)
    assert {one.joules for one in effects.rows(AttemptEnergy).values()} == {40.0, 500.0}
    metrics.count(grid.end(second, Outcome.GIVEN_BACK, joules={DECLARED: 7.0}))
    shown = metrics.render(
        grid.scheduler, PassingReport(order="hold", completions=0, passings=0, excused={}, latest=[])
    )
    assert b'loopline_energy_joules_total{counts="true",source="gpu"} 500.0' in shown
    assert b'loopline_energy_joules_total{counts="false",source="declared"} 7.0' in shown


def test_impossible_joules_are_cut() -> None:
    grid = Grid()
    grid.join("ant", MEASURING)
    grid.submit()
    grid.now += 2.0
    effects = grid.end(grid.running("ant")[0], joules={DECLARED: 1e12})
    assert [one.joules for one in effects.rows(AttemptEnergy).values()] == [2.0 * MOST_WATTS]


def test_joules_of_all_sources_together_are_cut() -> None:
    grid = Grid()
    grid.join("ant", MEASURING)
    grid.submit()
    grid.now += 2.0
    effects = grid.end(grid.running("ant")[0], joules={DECLARED: 1e12, GPU: 1e12})
    assert sum(one.joules for one in effects.rows(AttemptEnergy).values()) == 2.0 * MOST_WATTS


def test_joules_of_an_unreported_source_are_dropped() -> None:
    grid = Grid()
    grid.join("ant", MEASURING)
    grid.join("bee", replace(facts(2), energy=(GPU,)))
    grid.submit(4)
    grid.now += 2.0
    effects = grid.end(grid.running("bee")[0], joules={DECLARED: 3.0, GPU: 5.0})
    assert [(one.source, one.joules) for one in effects.rows(AttemptEnergy).values()] == [(GPU, 5.0)]


def test_members_of_a_gang_are_counted_once_all_have_ended() -> None:
    grid, metrics = Grid(), Metrics()
    for name in "ab":
        grid.join(name, replace(facts(1, gangs=True), energy=(DECLARED,)))
    job = grid.submit(1, nodes=2)
    for name in "ababab":
        grid.report(name)
    grid.now += 10.0
    for name in "ab":
        ends = [result(one, wall_s=5.0, cpu_s=5.0, joules={DECLARED: 100.0}) for one in grid.running(name)]
        metrics.count(grid.report(name, *ends))
    assert grid.job(job).state is JobState.SUCCEEDED
    shown = metrics.render(
        grid.scheduler, PassingReport(order="hold", completions=0, passings=0, excused={}, latest=[])
    )
    assert b'loopline_energy_joules_total{counts="true",source="declared"} 200.0' in shown
    assert b'counts="false"' not in shown


def test_joules_are_noted_by_a_master_that_restarted() -> None:
    grid = Grid()
    grid.join("ant", MEASURING)
    grid.submit()
    attempt = grid.running("ant")[0]
    grid.restart()
    assert grid.scheduler.state.wings[Energy].is_awake
    grid.join("ant", MEASURING)
    grid.now += 1.0
    effects = grid.end(attempt, joules={DECLARED: 3.0})
    assert len(effects.rows(AttemptEnergy)) == 1


def test_vote_of_a_quorum_is_noted_before_the_task_is_decided() -> None:
    grid = Grid()
    grid.join("ant", MEASURING)
    grid.join("bee", MEASURING)
    grid.submit(quorum=2)
    first = AttemptId(1, 1, 1)
    grid.now += 1.0
    assert len(grid.end(first, joules={DECLARED: 3.0}).rows(AttemptEnergy)) == 1


def test_wing_sleeps_where_no_worker_measures_or_declares() -> None:
    grid = Grid()
    grid.join("ant", facts(1))
    assert not grid.scheduler.state.wings[Energy].is_awake
