"""Transitions: the states that may follow each state.

Each state machine has one table, used by the check at run time (here), the database's CHECK constraints, the diagrams
in the docs and the exhaustive test.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from loopline_shared.model import AttemptState, JobState, Outcome, TaskState

JOB: Mapping[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    # queued to succeeded: cancelled when it was computed (order *deliver*), and retried without tasks left to run
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.SUCCEEDED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),  # retried
    JobState.CANCELLED: frozenset({JobState.QUEUED, JobState.WAITING}),  # retried
}

TASK: Mapping[TaskState, frozenset[TaskState]] = {
    # queued to succeeded or failed: a lost attempt comes back with its result before another has started
    TaskState.QUEUED: frozenset({TaskState.RUNNING, TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED}),
    TaskState.RUNNING: frozenset({TaskState.QUEUED, TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED}),
    TaskState.SUCCEEDED: frozenset(),
    TaskState.FAILED: frozenset({TaskState.QUEUED}),  # retried
    TaskState.CANCELLED: frozenset({TaskState.QUEUED}),  # retried
}

_ENDS = {AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED, AttemptState.LOST}
ATTEMPT: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.DISPATCHED: frozenset(  # to prefetched: its slot was no longer free on arrival
        {
            AttemptState.PREFETCHED,
            AttemptState.PREPARED,
            AttemptState.RUNNING,
            AttemptState.FROZEN,
            AttemptState.DELIVERING,
            AttemptState.CANCELLING,
            *_ENDS,
        }
    ),
    AttemptState.PREFETCHED: frozenset(
        {AttemptState.RUNNING, AttemptState.FROZEN, AttemptState.DELIVERING, AttemptState.RETRACTING, *_ENDS}
    ),
    AttemptState.PREPARED: frozenset(  # to dispatched: its agent was restarted and prepares it again
        {
            AttemptState.DISPATCHED,
            AttemptState.RUNNING,
            AttemptState.FROZEN,
            AttemptState.DELIVERING,
            AttemptState.FINISHED,
            AttemptState.FAILED,
            AttemptState.CANCELLING,
            AttemptState.CANCELLED,
            AttemptState.LOST,
        }
    ),
    AttemptState.RUNNING: frozenset(
        {AttemptState.FROZEN, AttemptState.DELIVERING, AttemptState.FINISHED, AttemptState.CANCELLING, *_ENDS}
    ),
    AttemptState.FROZEN: frozenset(
        {AttemptState.RUNNING, AttemptState.DELIVERING, AttemptState.FINISHED, AttemptState.CANCELLING, *_ENDS}
    ),
    AttemptState.DELIVERING: frozenset({AttemptState.FINISHED, AttemptState.RETRACTING, *_ENDS}),
    AttemptState.FINISHED: frozenset({AttemptState.SUCCEEDED, AttemptState.CANCELLED}),
    # succeeded or failed: its result crossed the cancel; the other one: it had not begun, or has begun since then
    AttemptState.CANCELLING: frozenset({AttemptState.RETRACTING, *_ENDS}),
    AttemptState.RETRACTING: frozenset({AttemptState.CANCELLING, *_ENDS}),
    AttemptState.LOST: frozenset(  # not an end: the laptop comes back
        {
            AttemptState.PREPARED,
            AttemptState.RUNNING,
            AttemptState.FROZEN,
            AttemptState.DELIVERING,
            AttemptState.FINISHED,
            AttemptState.CANCELLING,
            AttemptState.RETRACTING,  # it had not begun, or has ended
            AttemptState.SUCCEEDED,
            AttemptState.FAILED,
            AttemptState.CANCELLED,
        }
    ),
    AttemptState.SUCCEEDED: frozenset(),
    AttemptState.FAILED: frozenset(),
    AttemptState.CANCELLED: frozenset(),
}

END: Mapping[Outcome, AttemptState] = {
    Outcome.SUCCEEDED: AttemptState.SUCCEEDED,
    Outcome.FAILED: AttemptState.FAILED,
    Outcome.CANCELLED: AttemptState.CANCELLED,
    Outcome.GIVEN_BACK: AttemptState.CANCELLED,
}
"""The state of an attempt after a result with each outcome."""

State = TypeVar("State", bound=StrEnum)


def check(machine: Mapping[State, frozenset[State]], old: State, new: State) -> State:
    """Return ``new``. Raises AssertionError if the machine does not allow it, which is a bug."""
    if new not in machine[old]:
        raise AssertionError(f"{type(old).__name__} may not go from {old} to {new}")
    return new
