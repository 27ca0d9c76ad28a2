"""The world machine must be able to fail: each bug planted here, one that has bitten real schedulers, is caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from loopline_master.core import lifecycle, trust, worker_sessions
from loopline_master.core.entities import Attempt
from loopline_master.core.index import attempts
from loopline_master.core.index.index import Index
from loopline_master.core.index.job_order import Dependents, HoldIndex
from loopline_master.core.state import State
from loopline_shared.model import AttemptState, Result
from loopline_simulator.full import grid_world
from tests.properties.test_world import WorldMachine

Patch = pytest.MonkeyPatch
HUNT = settings(
    max_examples=1500,
    stateful_step_count=60,
    deadline=None,
    database=None,
    derandomize=True,
    print_blob=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def hold_ignores_ties(patch: Patch) -> None:
    """Found by the audit of the rows alone: the invariants, which would see it sooner, look away."""
    patch.setattr(grid_world, "check", lambda grid: None)
    original = HoldIndex.blocker
    patch.setattr(HoldIndex, "blocker", lambda self, arrival, weight: original(self, arrival, weight * (1 - 1e-12)))


def hold_is_dropped_after_restore(patch: Patch) -> None:
    original = State.__init__

    def forgetful(self: State, snapshot: object) -> None:
        original(self, snapshot)  # type: ignore[arg-type]
        self.index.hold = HoldIndex()

    patch.setattr(State, "__init__", forgetful)


def losers_are_not_cancelled(patch: Patch) -> None:
    patch.setattr(lifecycle, "cancel_attempt", lambda state, attempt, reason: None)


def a_second_result_is_accepted(patch: Patch) -> None:
    original = lifecycle._record

    def generous(grid: State, attempt: Attempt, result: Result) -> None:
        original(grid, attempt, result)
        attempt.accepted = attempt.state is AttemptState.SUCCEEDED

    patch.setattr(lifecycle, "_record", generous)


def a_run_that_never_arrived_is_not_sent_again(patch: Patch) -> None:
    patch.setattr(worker_sessions, "_send_again", lambda grid, attempt: None)


def a_voter_is_asked_again(patch: Patch) -> None:
    """By invariants and rows alike: two results of one worker are no quorum."""
    patch.setattr(Index, "on_worker", lambda self, task, worker: self.attempts.is_on(task, worker))
    patch.setattr(
        trust,
        "decides_task",
        lambda grid, job, task, attempt: (
            reached(grid, job, task, attempt) or len(task.votes) >= (job.spec.quorum or 1)
        ),
    )


def slots_of_what_is_cancelled_are_given_away_while_it_runs(patch: Patch) -> None:
    patch.setitem(attempts._ROLES, AttemptState.CANCELLING, attempts._KEPT)


def nobody_is_released(patch: Patch) -> None:
    patch.setattr(Dependents, "followers", lambda self, job: [])


reached = trust.decides_task


def what_has_begun_still_counts_as_waiting(patch: Patch) -> None:
    patch.setitem(attempts._ROLES, AttemptState.RUNNING, attempts._ROLES[AttemptState.PREFETCHED])


BUGS = [
    hold_ignores_ties,
    hold_is_dropped_after_restore,
    losers_are_not_cancelled,
    a_second_result_is_accepted,
    a_run_that_never_arrived_is_not_sent_again,
    what_has_begun_still_counts_as_waiting,
    slots_of_what_is_cancelled_are_given_away_while_it_runs,
]


BUGS_IN_CHAINS_AND_QUORUMS = [a_voter_is_asked_again, nobody_is_released]


@pytest.mark.parametrize("plant", [*BUGS, *BUGS_IN_CHAINS_AND_QUORUMS])
def test_it_is_caught(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(WorldMachine, settings=HUNT)
