"""Queues at workers, while several users share the grid: whose tasks may wait there, and for how long.

The expected run time of a task is a user's size, a prediction or a mean, and each of these can be wrong by orders of
magnitude. Then a queue that should last a second lasts an hour, and other users wait behind it. So

1. a task of a job may wait only if fewer tasks wait there for each slot than the job has had attempts in a row that
   confirmed the expectation (two may always wait), and an attempt that takes longer resets the count;
2. when a running attempt has taken clearly longer than expected and longer than ``prefetch_s``, all tasks of its job
   that wait behind it are retracted;
3. when a user has tasks to start, those of users whose turn comes later are retracted from the queues before them.

Retracting costs two frames and no work. Each step checks a bounded number of users and queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from loopline_master.core.estimates import measure
from loopline_master.core.estimates.observed_results import longest_expected_s
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.entities import Attempt, Job, Worker
from loopline_master.core.kernel.index.attempts import is_at_work, milliseconds
from loopline_master.core.kernel.index.sorted_collections import Ranking
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.shares.accounts import Accounts
from loopline_master.core.wings.shares.user_slots import may_take
from loopline_shared.model import AttemptId

UNCONFIRMED = 2
"""Tasks that may wait for each slot without any confirmation."""
_MOST_USERS, _MOST_QUEUES = 4, 4
"""Limits for one step: the users next in turn, and the queues before each of them, that are checked."""


class LateAttempts:
    """Short attempts in slots, by the time when the tasks behind them have waited for too long."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._due = Ranking[AttemptId, tuple[float, AttemptId]]()

    @property
    def due_at(self) -> float | None:
        """Time of the next check; None if there is none."""
        return self._due.order[0][0] if self._due.order else None

    def workers(self, now: float) -> set[str]:
        """Return the workers of attempts that are due."""
        return {self._state.attempts[number].worker for number in self._due_by(now)}

    def restart(self, *, is_needed: bool) -> None:
        """Note the attempts that are in slots now."""
        self._due = Ranking()
        for attempt in self._state.attempts.values() if is_needed else ():
            self.note(attempt, self._state.index.attempts.roles.get(attempt.id, 0))

    def skip(self, until: float) -> None:
        """Skip the checks due until then, because they were made before this scheduler was started from the rows."""
        for number in self._due_by(until):
            self._due.place(number, None)

    def note(self, attempt: Attempt, role: int) -> None:
        """Note an attempt whose role has changed."""
        number, limit_s = attempt.id, self._state.prefetch_s
        if is_at_work(role) and 0 < attempt.expected_s <= limit_s:
            ran_s = measure.ran_s(attempt, attempt.since, self._state.now)
            at = self._state.now - ran_s + max(limit_s, longest_expected_s(attempt))
            self._due.place(number, (at, number))
        elif number in self._due.keys:
            self._due.place(number, None)

    def expire(self) -> None:
        """Retract the tasks behind attempts that take longer than expected."""
        state = self._state
        for number in self._due_by(state.now):
            self._due.place(number, None)
            attempt = state.attempts[number]
            job, worker = state.jobs[attempt.job], state.workers[attempt.worker]
            worked_s = measure.worked_s(attempt, min(state.now, worker.reported_at or 0.0))
            if worked_s > longest_expected_s(attempt):  # else it waits for its inputs
                measure.note_longer(job, worked_s * measure.speed_now(worker))
            state.put(job)
            for other in [*state.index.attempts.queues.of_worker.get(worker.name, ())]:
                if other.job == job.id:
                    lifecycle.retract_attempt(
                        state, state.attempts[other], "a task before it takes longer than expected"
                    )

    def _due_by(self, now: float) -> list[AttemptId]:
        return [number for _, number in takewhile(lambda one: one[0] <= now, self._due.order)]


def most_waiting(state: State, job: Job, worker: Worker) -> float:
    """Return the limit of the worker's queue including a task of this job, in tasks."""
    if any(one.job == job.id and _is_late(state, one) for one in _seated_on(state, worker)):
        return 0
    return max(UNCONFIRMED, job.confirmed) * max(1, worker.offered)


def cut_excess(state: State, worker: Worker) -> None:
    """Retract the attempts that are now too far back in a worker's queue, the last first."""
    queue = [*state.index.attempts.queues.order.get(worker.name, ())]
    excess = [
        attempt
        for place in range(len(queue), UNCONFIRMED, -1)
        if place > most_waiting(state, state.jobs[(attempt := state.attempts[queue[place - 1][1]]).job], worker)
    ]
    for attempt in excess:
        lifecycle.retract_attempt(state, attempt, "tasks before it took longer than expected")


def cut_to_limit(state: State) -> None:
    """Retract the attempts prefetched for a single user, as far as they exceed the limit for several users."""
    queues = state.index.attempts.queues
    for name in sorted(queues.work_ms):
        most_ms = milliseconds(state.prefetch_s) * max(1, state.workers[name].offered)
        while queues.work_ms.get(name, 0) > most_ms:
            latest = state.attempts[queues.latest_on(name)]
            lifecycle.retract_attempt(state, latest, "it would stand before the tasks of another user")


def _seated_on(state: State, worker: Worker) -> Iterator[Attempt]:
    attempts = state.index.attempts
    return attempts.seated_on(worker.name) if worker.name in attempts.of_worker else iter(())


def _is_late(state: State, attempt: Attempt) -> bool:
    """True if an attempt has taken clearly longer than expected and than a queue may last."""
    ran_s = measure.ran_s(attempt, attempt.since, state.now)
    return ran_s >= max(state.prefetch_s, longest_expected_s(attempt))


def make_way(state: State) -> Iterator[None]:
    """Retract prefetched tasks that wait before the tasks of users who come first. Yields after each user."""
    index, accounts = state.index, state.own(Accounts)
    owners = index.requirements.owners_in(index.ready)
    ranks = sorted((accounts.rank(name, state.now), name) for name in owners)
    for rank, name in ranks[:_MOST_USERS]:
        if may_take(state, name, 1):
            own = rank
            for worker in [*islice(_queues_before(state, name), _MOST_QUEUES)]:
                own = _retract_later_turns(state, worker, own, accounts.users[name].share)
            yield


def _queues_before(state: State, user: str) -> Iterator[str]:
    """Return workers with a queue that serve a job of the user with a task to start, the longest queues first.

    None if the user can start a task at once on one of the first idle workers.
    """
    ready, slots, served_by = state.index.ready.keys(), state.index.slots, state.index.requirements.served_by
    idle = islice(slots.idle.order, _MOST_QUEUES)
    if any(not ready.isdisjoint(served_by(entry[-1], user)) for entry in idle):
        return
    for _, name in islice(slots.backlog.order, 4 * _MOST_QUEUES):
        if not ready.isdisjoint(served_by(name, user)):
            yield name


def _retract_later_turns(state: State, worker: str, rank: float, share: float) -> float:
    """Retract the last tasks of a queue while their users come clearly after a user of this rank and share.

    Return the rank that the user will have after taking these places: otherwise two users would retract one
    another's tasks in turns.
    """
    accounts, queues = state.own(Accounts), state.index.attempts.queues
    while worker in queues.order:
        last = state.attempts[queues.latest_on(worker)]
        owner = accounts.users[state.jobs[last.job].owner]
        work_s = last.expected_s * last.slots
        if accounts.rank(owner.name, state.now) - work_s / owner.share <= rank + state.prefetch_s / share:
            return rank
        rank += work_s / share
        lifecycle.retract_attempt(state, last, "it is the turn of another user, whose tasks would wait behind it")
    return rank
