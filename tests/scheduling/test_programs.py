"""The history of a program's runs, and the prediction for its next run."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_master.core.estimates import program_history
from loopline_master.core.kernel.entities import Program
from loopline_master.core.kernel.runs import Observation, key_of
from loopline_shared.spec import JobSpec, TaskSpec


def seen(work: float, worker: str = "a", at: float = 1.0) -> Observation:
    return Observation(at, worker, work, wall_s=work, cpu_s=work, system_s=0.0, peak_memory_bytes=0)


def program_of(*works: float) -> Program:
    program = Program("ann", "pi", "/home/ann", 0.0, 0.0)
    for work in works:
        program_history.learn(program, seen(work))
    return program


def expected(*works: float) -> float:
    prediction = program_history.predict(program_of(*works))
    assert prediction is not None
    return prediction.work


FUNCTION: dict[str, Any] = {
    "function": {"file": f"sha256:{'ab' * 32}", "python": "3.11", "session": "s"},
    "requires": {"python": "3.11"},
    "parameters": {"rows": [{"call": ""}]},
}


# --- the program of a job ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "key"),
    [
        ({"command": ["./pi"], "name": "sweep", "folder": "/f"}, ("ann", "sweep", "/f")),
        ({"command": ["./pi"], "name": "sweep"}, ("ann", "sweep", "pi")),
        ({"command": ["/opt/bin/pi", "--seed", "1"]}, ("ann", "pi", "pi")),
        ({"command": ["python3", "-u", "sims/a.py", "x"], "name": "python3", "folder": "/f"}, ("ann", "a.py", "/f")),
        ({"command": ["python3.11", "-m", "job"]}, ("ann", "job", "job")),
        ({"command": ["python3", "-c", "print(1)"]}, ("ann", "python3", "python3")),
        ({"command": [r"C:\tools\pi.exe"], "name": "pi.exe"}, ("ann", "pi", "pi")),
        ({"tasks": [TaskSpec(command=["./a"]), TaskSpec(command=["./b"])]}, ("ann", "a", "a")),
        ({**FUNCTION, "folder": "/f"}, ("ann", "function abababababab", "/f")),
        ({**FUNCTION, "name": "sweep", "folder": "/f"}, ("ann", "sweep", "/f")),
    ],
)
def test_program_is_identified_by_owner_name_and_folder(job: dict[str, Any], key: tuple[str, str, str]) -> None:
    assert key_of("ann", JobSpec(**job)) == key


# --- predictions ------------------------------------------------------------------------------------------------


def test_program_that_never_ran_has_no_prediction() -> None:
    assert program_history.predict(program_of()) is None


def test_prediction_from_one_run_has_a_wide_spread() -> None:
    once = program_history.predict(program_of(10.0))
    assert once is not None
    assert (once.work, once.mean, once.p10, once.p90, once.runs) == (10.0, 10.0, 2.5, 40.0, 1)
    often = program_history.predict(program_of(*[10.0] * 20))
    assert often is not None
    assert 9.0 < often.p10 < often.work == 10.0 < often.p90 < 11.0


def test_one_outlier_does_not_move_the_prediction() -> None:
    assert expected(*[10.0] * 12, 1000.0, *[10.0] * 3) == 10.0


def test_prediction_follows_a_drift() -> None:
    assert expected(*[10.0 * 1.1**run for run in range(30)]) == pytest.approx(10.0 * 1.1**29, rel=0.15)


def test_prediction_of_scattered_runs_is_their_median() -> None:
    assert expected(*[8.0, 12.0, 9.0, 11.0] * 6) == pytest.approx(10.0, rel=0.15)


def test_bimodal_runs_widen_the_spread() -> None:
    prediction = program_history.predict(program_of(*[1.0, 100.0, 100.0, 1.0] * 6))
    assert prediction is not None
    assert prediction.p10 < 2.0
    assert prediction.p90 > 90.0
    assert prediction.mean == pytest.approx(50.0, rel=0.3), "the mean over many tasks"


@given(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=80))
def test_spread_always_contains_the_prediction(works: list[float]) -> None:
    program = program_of(*works)
    prediction = program_history.predict(program)
    assert prediction is not None
    assert 0 < prediction.p10 <= prediction.work <= prediction.p90 <= 1e10
    assert prediction.p10 <= prediction.mean <= prediction.p90
    assert (program.runs, len(program.window) <= program_history.WINDOW) == (len(works), True)


def with_shares(wall_s: float, *shares: float) -> Program:
    """Runs of ``wall_s`` each, each with this share of a core on another worker."""
    program = Program("ann", "pi", "/home/ann", 0.0, 0.0)
    for share in shares:
        program_history.learn(
            program,
            Observation(
                1.0,
                "b",
                wall_s * share,
                wall_s=wall_s,
                cpu_s=wall_s * share,
                system_s=0.0,
                peak_memory_bytes=0,
                share=share,
            ),
        )
    return program


def test_share_of_a_core_is_ignored_for_programs_that_sleep() -> None:
    prediction = program_history.predict(with_shares(2.0, *[1.0, 0.1, 0.5, 0.2] * 4))
    assert prediction is not None
    assert prediction.work == 2.0


@pytest.mark.parametrize(
    ("share", "cpu_s", "slots", "wanted"),
    [(1.0, 2.0, 1, 1.0), (1.0, 0.01, 1, 0.25), (1.0, 0.9, 1, 0.5),
     (0.4, 0.8, 1, 1.0), (1.0, 2.0, 2, 0.5), (1 / 16, 0.01, 1, 1.0)],
)  # fmt: skip
def test_share_wanted_is_estimated_from_cpu_time(share: float, cpu_s: float, slots: int, wanted: float) -> None:
    program = Program("ann", "pi", "/home/ann", 0.0, 0.0)
    assert program_history.share_wanted(program, slots) == program_history.share_wanted(None, slots) == 1.0
    run = Observation(1.0, "b", 1.0, wall_s=2.0, cpu_s=cpu_s, system_s=0.0, peak_memory_bytes=0, share=share)
    program_history.learn(program, run)
    assert program_history.share_wanted(program, slots) == wanted


def test_share_of_a_core_scales_the_work_of_programs_that_compute() -> None:
    program = Program("ann", "pi", "/home/ann", 0.0, 0.0)
    for share in [1.0, 0.1, 0.5, 0.2] * 4:
        program_history.learn(
            program,
            Observation(1.0, "b", 2.0, wall_s=2.0 / share, cpu_s=2.0, system_s=0.0, peak_memory_bytes=0, share=share),
        )
    prediction = program_history.predict(program)
    assert prediction is not None
    assert prediction.work == 2.0


def is_far_slower(program: Program, run: Observation) -> bool:
    return program_history.most_by_others(program, run) < inf


def test_sleeping_program_does_not_make_an_unshared_worker_look_slow() -> None:
    """Runs of 2 s each, on workers with a tenth of a core spare, and on one with a whole core."""
    program = with_shares(2.0, *[0.1] * 8)
    assert not is_far_slower(program, seen(2.0, "a"))
    assert is_far_slower(program, seen(9.0, "a"))


# --- changes of a program ---------------------------------------------------------------------------------------


def test_several_unusual_runs_in_a_row_are_a_change() -> None:
    program = program_of(*[10.0] * 20, 50.0, 50.0, 50.0)
    assert (program.strange, len(program.window), program.changed_at) == (3, 23, None)
    program_history.learn(program, seen(50.0, at=7.0))
    assert (program.strange, len(program.window), program.changed_at, program.runs) == (0, 4, 7.0, 24)
    assert program_history.predict(program).work == 50.0  # type: ignore[union-attr]


def test_isolated_unusual_runs_are_no_change() -> None:
    program = program_of(*[10.0] * 20, 50.0, 50.0, 50.0, 10.0)
    assert (program.strange, program.changed_at) == (0, None)


def test_no_run_is_unusual_among_a_few() -> None:
    assert program_of(1.0, 100.0, 1.0, 100.0).strange == 0


# --- workers far slower than others -----------------------------------------------------------------------------


def test_worker_far_slower_than_others_is_recognized() -> None:
    program = program_of(*[10.0] * 8)
    assert is_far_slower(program, seen(50.0, "b"))
    assert not is_far_slower(program, seen(30.0, "b"))
    assert not is_far_slower(program, seen(50.0, "a")), "it cannot be slower than itself"
    program_history.learn(program, seen(50.0, "b"))
    assert is_far_slower(program, seen(50.0, "b")), "again"
    assert not is_far_slower(program, seen(50.0, "c")), "slow on b too, so the program may have changed"


def test_full_window_learns_from_one_run_per_tenth_of_a_second() -> None:
    program = Program("ann", "pi", "/", first_run_at=0.0, used_at=0.0)
    for second in range(program_history.WINDOW):
        assert program_history.is_news(program, 1.0), "the window is not full yet"
        program_history.learn(
            program,
            Observation(1.0, "a", 1.0 + second / 100, wall_s=1.0, cpu_s=1.0, system_s=0.0, peak_memory_bytes=0),
        )
    assert not program_history.is_news(program, 1.0)
    assert not program_history.is_news(program, 1.05)
    assert program_history.is_news(program, 1.1)
    assert program.works == sorted(run.work for run in program.window)


def test_run_in_each_step_is_learned_if_the_program_may_have_changed() -> None:
    program = program_of(*[10.0] * program_history.WINDOW)
    program_history.learn(program, seen(50.0, at=2.0))
    assert not program_history.is_news(program, 2.0)
    assert program_history.is_news(program, 2.01)


def test_cached_prediction_is_updated_by_new_runs() -> None:
    program = program_of(10.0, 10.0)
    assert program_history.predict(program).work == 10.0  # type: ignore[union-attr]
    for _ in range(3):
        program_history.learn(program, seen(20.0))
    assert program_history.predict(program).work == 20.0  # type: ignore[union-attr]
