"""Prefetching between users: as many tasks wait in a worker's queue as experience supports.

The expected run time of a task is a user's size, a prediction or a mean, and any of them can be wrong by orders of
magnitude. Then a queue that should last a second lasts an hour, and other users wait behind it. So a task of a job
may wait only if the tasks that wait there for each slot are fewer than the job's attempts that confirmed the
expectation in a row. Two may always wait. An attempt that takes longer than expected resets the count, and its
worker's queue is cut back.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from loopline_master.core.kernel.entities import Attempt, Job, Worker
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptState

UNCONFIRMED = 2
"""Tasks that may wait for each slot whatever is known about them."""
_RESULTS = (AttemptState.SUCCEEDED, AttemptState.FAILED)
_TOLERANCE = 2.0
_NOISE_S = 0.05
"""An attempt confirms the expectation if it takes at most ``_TOLERANCE`` times as long, plus the noise of a start."""


def note_run_time(state: State, job: Job, attempt: Attempt) -> Sequence[Attempt]:
    """Compare the run time of an attempt that has ended with the expected one, and count it for its job.

    If it took longer, return the attempts now too far back in their worker's queue, the last first.
    """
    if attempt.wall_s <= _TOLERANCE * attempt.expected_s + _NOISE_S:
        if attempt.state in _RESULTS:
            job.confirmed += 1
        return ()
    job.confirmed = 0
    return _excess(state, state.workers[attempt.worker])


def most_waiting(state: State, job: Job, worker: Worker) -> float:
    """Return how long the worker's queue may be including a task of this job, in tasks."""
    if not state.accounts.are_shared:
        return inf
    return max(UNCONFIRMED, job.confirmed) * max(1, worker.offered)


def _excess(state: State, worker: Worker) -> list[Attempt]:
    found = []
    queue = state.index.attempts.queues.order.get(worker.name, ())
    for place in range(len(queue), UNCONFIRMED, -1):
        attempt = state.attempts[queue[place - 1][1]]
        if place > most_waiting(state, state.jobs[attempt.job], worker):
            found.append(attempt)
    return found
