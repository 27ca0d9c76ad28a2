"""Checkpoints in the fast world: when they are taken, which one is used, and which work counts as lost."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.wings.checkpoints.saved_work import ResumedAttempt, SavedCheckpoint
from loopline_shared.errors import LooplineError
from loopline_shared.model import Order
from loopline_shared.protocol.checkpoints import CheckpointOrder
from loopline_shared.spec import JobSpec
from loopline_simulator.__main__ import main
from loopline_simulator.fast.availability import Absence, Interrupted, Interval, absences
from loopline_simulator.fast.churn import Churn, WeibullLaw
from loopline_simulator.fast.hosts import Speed, Steady
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.metrics import Measures
from loopline_simulator.fast.saving_world import Saving, SavingWorld
from loopline_simulator.fast.trial import Case, run
from loopline_simulator.fast.workload import Workload
from loopline_simulator.fast.world import Arrival, Host
from loopline_simulator.study.sections import checkpoints
from loopline_worker.checkpoints.interval import CheckpointIntervals
from tests.simulator.test_changing import SETTINGS, Watch, facts, job

UNTIL_50, FROM_60 = Interval(0.0, 50.0), Interval(60.0, math.inf)
TASK, REFERENCE = job(100.0), Steady(1.0)
EVERY_10 = Saving(10.0, cost_s=1.0, size_bytes=100.0, bytes_s=50.0)


class _SavingWatch(Watch):
    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[tuple[int, int, str], SavedCheckpoint] = {}
        self.resumed: list[ResumedAttempt] = []

    def __call__(self, effects: Effects) -> None:
        super().__call__(effects)
        self.saved |= effects.rows(SavedCheckpoint)
        self.resumed += effects.rows(ResumedAttempt).values()


def _run(
    saving: Saving,
    stays: dict[str, list[Interval]],
    work: JobSpec = TASK,
    absence: Absence = Absence.LOSES,
    speed: Speed = REFERENCE,
) -> tuple[SavingWorld, _SavingWatch]:
    watch = _SavingWatch()
    hosts = [Host(name, facts(), speed) for name in stays]
    world = SavingWorld(SETTINGS, hosts, [Arrival(0.0, work)], watch, saving=saving, stays=stays, absence=absence)
    world.run()
    return world, watch


def _losses(world: SavingWorld) -> float:
    """Return the work that no result contains."""
    return world._spent.work - sum(one.work for one in world._useful.values())


def test_lost_task_continues_from_the_newest_checkpoint_at_the_master() -> None:
    """One is begun every 10 s and stops the task for 1 s; the one of 40 s has arrived at 43 s."""
    world, watch = _run(EVERY_10, {"ant": [UNTIL_50, FROM_60]})
    lost, resumed = watch.attempts["1.1.1"], watch.attempts["1.1.2"]
    assert lost.ended_at == 60.0  # another session shows that it is gone
    (continued,) = watch.resumed
    assert continued.cpu_s == pytest.approx(37.0)  # 40 s, but for three checkpoints
    assert continued.times == 1
    assert watch.jobs[1].finished_at == resumed.dispatched_at + 63.0 + 6.0  # six checkpoints of 1 s
    assert _losses(world) == pytest.approx(50.0 - 37.0 + 6.0)


def test_checkpoint_that_was_not_uploaded_is_not_used() -> None:
    slow = Saving(10.0, cost_s=0.0, size_bytes=1000.0, bytes_s=50.0)  # 20 s each, one at a time
    _, watch = _run(slow, {"ant": [UNTIL_50, FROM_60]})
    (continued,) = watch.resumed
    assert continued.cpu_s == pytest.approx(10.0)  # sent from 10 to 30 s; the next, of 30 s, arrives at 50 s


def test_other_machine_continues_at_its_own_speed() -> None:
    watch = _SavingWatch()
    hosts = [Host("ant", facts(1.0), Steady(1.0)), Host("bee", facts(2.0), Steady(2.0))]
    stays = {"ant": [UNTIL_50], "bee": [Interval(45.0, math.inf)]}
    saving = Saving(10.0, cost_s=0.0, size_bytes=1.0)
    SavingWorld(SETTINGS, hosts, [Arrival(0.0, job(100.0))], watch, saving=saving, stays=stays).run()
    resumed = watch.attempts["1.1.2"]
    assert resumed.worker == "bee"
    assert watch.jobs[1].finished_at == pytest.approx(resumed.dispatched_at + (100.0 - 40.0) / 2.0)


def test_interval_is_the_workers_own_rule() -> None:
    saving = Saving(None, cost_s=2.0, size_bytes=100.0, bytes_s=25.0)
    _, watch = _run(saving, {"ant": [Interval(0.0, math.inf)]}, job(5_000.0))
    rule = CheckpointIntervals(CheckpointOrder(), 0.0)
    rule.taken(0.0, 2.0)
    arrived = sorted(saved.taken_at for saved in watch.saved.values())
    assert arrived[0] == pytest.approx(1.0 + 2 * rule.interval_s + 2.0 + 4.0)  # the first one shows the cost
    gaps = [later - before for before, later in pairwise(arrived[1:])]
    assert gaps == pytest.approx([2 * rule.interval_s] * len(gaps))  # each second one, as uploads cost more
    assert gaps


def test_machine_whose_owner_comes_often_saves_more_often() -> None:
    """The first task teaches how long the machine is there; the second one's checkpoints follow that."""
    there, away = 300.0, 30.0
    stays = [Interval(number * (there + away), number * (there + away) + there) for number in range(200)]
    watch, hosts = _SavingWatch(), [Host("ant", facts(), REFERENCE)]
    jobs, saving = [Arrival(0.0, job(10_000.0)), Arrival(0.0, job(1_000.0))], Saving(size_bytes=1.0)
    SavingWorld(SETTINGS, hosts, jobs, watch, saving=saving, stays={"ant": stays}).run()

    def gaps(number: int) -> list[float]:
        own = sorted(saved.taken_at for saved in watch.saved.values() if saved.job == number)
        return [later - before for before, later in pairwise(own)]

    assert median(gaps(2)) < median(gaps(1)[:5]) / 2


@pytest.mark.parametrize(("absence", "end"), [(Absence.SLEEPS, 110.0), (Absence.WORKS, 100.0)])
def test_attempt_that_is_not_lost_continues_without_a_checkpoint(absence: Absence, end: float) -> None:
    """No upload arrives while its machine is away."""
    stays = [UNTIL_50, FROM_60]
    speed = Interrupted(Steady(1.0), absences(stays)) if absence is Absence.SLEEPS else Steady(1.0)
    saving = Saving(7.0, cost_s=0.0, size_bytes=1.0, bytes_s=1.0)
    _, watch = _run(saving, {"ant": stays}, absence=absence, speed=speed)
    assert watch.jobs[1].finished_at == pytest.approx(end)
    assert not watch.resumed
    assert not [saved.taken_at for saved in watch.saved.values() if 50.0 < saved.taken_at < 60.0]


def test_machine_that_sleeps_for_ever_ends_the_run() -> None:
    speed = Interrupted(Steady(1.0), [Interval(50.0, math.inf)])
    _, watch = _run(EVERY_10, {"ant": [UNTIL_50]}, absence=Absence.SLEEPS, speed=speed)
    assert watch.jobs[1].finished_at is None


CHURN = Churn(WeibullLaw(0.7, 900.0), WeibullLaw(1.0, 300.0))
LONG = Workload(4, 4, 600.0, largest=1800.0, interval=600.0)
PARK = Park(4, (1.0,), (), fit=1.0)


def _measures(policy: str, saving: Saving | None, seed: int = 1) -> Measures:
    return run(Case(seed, policy, Order.HOLD, LONG, PARK, max_replicas=2, churn=CHURN, saving=saving)).measures


@pytest.mark.parametrize("policy", ["fair", "round-robin"])
def test_checkpoints_end_jobs_sooner_and_none_passes(policy: str) -> None:
    saving = Saving(60.0, cost_s=0.5, size_bytes=1e6)
    for seed in (1, 2):
        none, saved = _measures(policy, Saving(0.0), seed), _measures(policy, saving, seed)
        assert saved.total.mean < none.total.mean
        assert saved.lost_work < none.lost_work
        assert (saved.passed, none.passed) == (0, 0)
        assert 0.0 <= saved.lost_time < 1.0


def test_world_without_checkpoints_is_the_changing_world() -> None:
    """Only lost time and work differ: the changing world counts a lost attempt until its lease is over."""
    plain, world = _measures("fair", None), _measures("fair", Saving(0.0))
    assert world.total == plain.total
    assert world.makespan == plain.makespan
    assert world.lost_work <= plain.lost_work


def test_section_compares_each_interval_with_the_rule() -> None:
    section = checkpoints()
    assert section.base == "auto"
    assert {"none", "every 10 min", "auto"} <= set(section.rows)
    assert len(section.cases) == len(section.rows) * len(section.columns)
    assert [case.saving.every_s for case in section.cases.values()][:2] == [0.0, 60.0]  # type: ignore[union-attr]


def _trace(tmp_path: Path, *more: str) -> int:
    log = tmp_path / "log.swf"
    log.write_text("".join(f"{number} {100 * number} 0 3000 1\n" for number in range(1, 7)))
    words = ["trace", "--swf", str(log), "--policies", "fair", "--pcs", "2", "--stay", "1500", "--away", "60"]
    return main([*words, "--patterns", "steady", "--processes", "1", "--lease", "10", *more])


def test_trace_compares_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _trace(tmp_path, "--checkpoints", "none", "60", "auto", "--json") == 0
    runs: Sequence[dict[str, float]] = json.loads(capsys.readouterr().out)["runs"]
    assert [one["checkpoints"] for one in runs] == ["none", "60 s", "auto"]
    none, fixed, auto = (one["lost_work"] for one in runs)
    assert max(fixed, auto) < none
    assert _trace(tmp_path, "--checkpoints", "none", "60") == 0
    assert "60 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--checkpoints", "often"], "'often' is no interval of checkpoints"),
        (["--checkpoints", "0.5"], "'0.5' is no interval of checkpoints"),
        (["--checkpoints", "5", "--checkpoint-cost", "5"], "leaves no time"),
        (["--checkpoints", "auto", "--upload-rate", "0"], "upload-rate"),
    ],
)
def test_wrong_checkpoints_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert _trace(tmp_path, *words) == 2
    assert message in capsys.readouterr().err


def test_spec_of_a_drawn_interval_is_valid() -> None:
    arrival = Saving(600.0).of(Arrival(0.0, job(1.0)))
    assert JobSpec.model_validate(arrival.spec.model_dump()) == arrival.spec
    with pytest.raises((LooplineError, ValueError)):
        Saving(0.1).of(Arrival(0.0, job(1.0)))
