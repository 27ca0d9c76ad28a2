"""``simulate dynamic-load``: unequal machines, predicted sizes, load that is reported at intervals."""

from __future__ import annotations

import json

import pytest

from loopline_shared.model import Order
from loopline_simulator.__main__ import main
from loopline_simulator.dynamic_load.dynamic_trial import DynamicCase, run
from loopline_simulator.dynamic_load.scenario import Information, Machines, Programs, SizeKnowledge

SMALL = Programs(jobs=150, load=0.5)
WORDS = ["dynamic-load", "--jobs", "60", "--loads", "0.6", "--seeds", "2", "--json"]


def turnaround(policy: str, **more: object) -> float:
    return sum(run(DynamicCase(seed, policy, programs=SMALL, **more)).measures.turnaround for seed in (1, 2))  # type: ignore[arg-type]


@pytest.mark.campaign
def test_the_same_bytes_on_any_number_of_processes(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*words: str) -> str:
        assert main([*WORDS, *words]) == 0
        return capsys.readouterr().out

    alone = printed("--processes", "1", "--policies", "turnaround", "cyclic")
    assert printed("--processes", "2", "--policies", "turnaround", "cyclic") == alone
    runs = json.loads(alone)["runs"]
    assert len(runs) == 2 * (2 + 3)  # seeds times (policies + information of turnaround)
    assert {one["information"] for one in runs} == {"piggyback", "periodic", "oracle"}


@pytest.mark.campaign
def test_choosing_by_turnaround_beats_choosing_blindly() -> None:
    ours = turnaround("turnaround")
    assert ours < 0.9 * turnaround("cyclic")
    assert ours < 0.9 * turnaround("random")


@pytest.mark.campaign
def test_programs_that_are_known_are_as_good_as_sizes_that_are_given() -> None:
    given = turnaround("turnaround", sizes=SizeKnowledge.GIVEN)
    assert turnaround("turnaround") < 1.2 * given


@pytest.mark.parametrize("information", Information)
@pytest.mark.parametrize("policy", ["turnaround", "random", "cyclic", "shortest-queue", "most-throughput"])
def test_no_job_is_passed_under_the_hold(policy: str, information: Information) -> None:
    case = DynamicCase(
        3,
        policy,
        Order.HOLD,
        sizes=SizeKnowledge.GIVEN,
        information=information,
        machines=Machines(6),
        programs=Programs(jobs=60, load=0.7),
    )
    assert run(case).measures.passings == 0


def test_load_matches_the_requested_one() -> None:
    machines = Machines()
    runs = Programs(jobs=4000, load=0.5).arrivals(5, machines.capacity)
    offered = sum(one.work for one in runs) / runs[-1].at
    assert offered == pytest.approx(0.5 * machines.capacity, rel=0.1)
