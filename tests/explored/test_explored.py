"""Every interleaving of tiny grids: no order of events breaks a promise, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.entities import Attempt
from loopline_master.core.kernel.index.job_order import HoldIndex
from loopline_master.core.kernel.sessions import worker_sessions
from loopline_shared.model import AttemptState
from tests.explored import grid
from tests.explored.configurations import LARGE, LARGEST, QUICK
from tests.explored.explorer import Counterexample, Explorer
from tests.explored.grid import Configuration

Patch = pytest.MonkeyPatch
EQUAL_JOBS, LOST_WORKER, ONE_LICENCE, *_ = QUICK
SLOW = (EQUAL_JOBS, LOST_WORKER)
"""Too slow for `make test-full` if also the states with one key are compared."""


def _name(about: Configuration) -> str:
    return about.name.replace(" ", "-")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("about", QUICK, ids=_name)
def test_no_order_of_events_breaks_a_promise(about: Configuration) -> None:
    assert Explorer(about).run().ends


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "about",
    [
        *(pytest.param(one, marks=pytest.mark.full, id=_name(one)) for one in LARGE),
        *(pytest.param(one, marks=pytest.mark.campaign, id=_name(one)) for one in LARGEST),
    ],
)
def test_no_order_of_events_breaks_a_promise_in_a_larger_grid(about: Configuration) -> None:
    assert Explorer(about).run().ends


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "about",
    [
        pytest.param(one, marks=pytest.mark.campaign if one in SLOW else pytest.mark.full, id=_name(one))
        for one in QUICK
    ],
)
def test_states_with_one_key_have_the_same_future(about: Configuration) -> None:
    assert Explorer(about, exchanges_workers=False, compares=True).run().ends


def hold_ignores_ties(patch: Patch) -> None:
    """Found by the audit of the rows; the scheduler's own invariants, which would see it sooner, are off."""
    patch.setattr(grid, "check", lambda state: None)
    original = HoldIndex.blocker
    patch.setattr(HoldIndex, "blocker", lambda self, arrival, weight: original(self, arrival, weight * (1 - 1e-12)))


def losers_are_not_cancelled(patch: Patch) -> None:
    patch.setattr(lifecycle, "cancel_attempt", lambda state, attempt, reason: None)


def a_second_result_is_accepted(patch: Patch) -> None:
    original = lifecycle.record

    def generous(state: object, attempt: Attempt, result: object, end: AttemptState) -> None:
        original(state, attempt, result, end)  # type: ignore[arg-type]
        attempt.accepted = attempt.state is AttemptState.SUCCEEDED

    patch.setattr(lifecycle, "record", generous)


def a_run_that_never_arrived_is_not_sent_again(patch: Patch) -> None:
    patch.setattr(worker_sessions, "_send_again", lambda state, attempt: None)


def units_of_lost_attempts_are_given_away(patch: Patch) -> None:
    patch.setattr(grid, "check", lambda state: None)
    original = lifecycle.mark_lost

    def generous(state: object, attempt: Attempt, reason: str, *, for_good: bool) -> None:
        original(state, attempt, reason, for_good=True)  # type: ignore[arg-type]

    patch.setattr(lifecycle, "mark_lost", generous)


@pytest.mark.parametrize(
    ("about", "plant", "violation", "events"),
    [
        (EQUAL_JOBS, hold_ignores_ties, "these jobs passed others: [(2, 1)]", 7),
        (LOST_WORKER, losers_are_not_cancelled, "1.1.1 is alive, its task is succeeded", 4),
        (LOST_WORKER, a_second_result_is_accepted, "task 1.1 has 2 accepted results", 6),
        (LOST_WORKER, a_run_that_never_arrived_is_not_sent_again, "ant and the master disagree", 3),
        (ONE_LICENCE, units_of_lost_attempts_are_given_away, "hold 2 of 1 licence", 5),
    ],
)
def test_planted_bug_is_found_with_its_shortest_path(
    about: Configuration, plant: Callable[[Patch], None], violation: str, events: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Counterexample) as found:
        Explorer(about).run()
    assert violation in str(found.value)
    assert len(found.value.path) == events, found.value  # in words, it is the shortest path
