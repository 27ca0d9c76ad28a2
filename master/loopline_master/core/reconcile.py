"""Reconciling: compare what a worker reports with what the scheduler believes.

This is the one path for news, loss, reboot and restart. It is the table of docs/design/architecture.md, row by row.
*Seen* means that the worker has carried out the Assign with the attempt's last command; before that, its silence
about the attempt says nothing.

| believed   | held                      | not held                              |
| dispatched | running, frozen or prefetched | seen: send the run again          |
| prefetched | running, frozen, or nothing to do | seen: send the run again      |
| running    | frozen, or nothing to do  | lost; its task is queued again        |
| frozen     | running, or nothing to do | lost; its task is queued again        |
| cancelling, retracting | seen: send the cancel again | seen: cancelled         |
| lost       | adopt; waiting: retract   | lost for good                         |
| unknown    | send a cancel             |                                       |
"""

from __future__ import annotations

from itertools import islice

from loopline_master.core import lifecycle, membership, transitions
from loopline_master.core.assign.frames import Outbox
from loopline_master.core.entities import LIVE, OCCUPYING, Attempt, Worker
from loopline_master.core.state import State
from loopline_shared.model import AttemptId, AttemptState, Held
from loopline_shared.protocol.attempt_ranges import attempts_of
from loopline_shared.protocol.messages import Report

_RUNS = AttemptState.RUNNING
Id = tuple[int, int, int]
"""Equal to an AttemptId."""


def reconcile(state: State, outbox: Outbox, worker: Worker, report: Report) -> None:
    """Take in one Report of the worker's open session."""
    load = report.load
    offered = load.slots if load.slots < worker.facts.slots else worker.facts.slots
    membership.renew_lease(state, worker)
    worker.reported, worker.reported_at, worker.load, worker.offered = report.seq, state.grid.now, load, offered
    state.put(worker)
    outbox.answer(worker.name)
    for result in report.results:
        attempt = state.attempts.get(result.attempt)
        if attempt is None or attempt.worker != worker.name:
            state.effects.late.append((worker.name, result))
        else:
            lifecycle.finish_attempt(state, attempt, result)
    if report.holding or report.waiting or worker.name in state.index.attempts.of_worker:
        _compare(state, outbox, worker, report)


def _compare(state: State, outbox: Outbox, worker: Worker, report: Report) -> None:
    """Compare the attempts that the worker reports with those it is believed to have."""
    begun, waiting = {held.attempt: held for held in report.holding}, set(attempts_of(report.waiting))
    queue = state.index.attempts.queues.of_worker.get(worker.name, {}).keys()
    strangers = [*begun, *(waiting - queue)]
    for attempt in _worth_a_look(state, worker, waiting):
        held = begun.get(attempt.id)
        if held is None and attempt.id not in waiting:
            _is_not_held(state, attempt, report.seen)
        elif attempt.state is not _RUNS or (held is not None and held.frozen):
            _is_held(state, attempt, held, report.seen)
    for stranger in strangers:
        if not _is_ours(state, worker, stranger):
            outbox.cancel_stranger(worker.name, AttemptId(*stranger))


def _worth_a_look(state: State, worker: Worker, waiting: set[Id]) -> list[Attempt]:
    """Return the worker's attempts, except those that wait there as before.

    Nothing follows from these, and they are most of a long queue.
    """
    attempts = state.index.attempts
    ours, queue = attempts.of_worker.get(worker.name, {}), attempts.queues.of_worker.get(worker.name)
    if queue is None or worker.name in attempts.frozen_on:
        return list(ours.values())
    others = (attempt for number, attempt in ours.items() if number not in queue)
    found = list(islice(others, len(ours) - len(queue)))  # which came before the queue, as a rule
    return [*found, *(ours[number] for number in sorted(queue.keys() - waiting))]


def _is_held(state: State, attempt: Attempt, held: Held | None, seen: int) -> None:
    """Take in that the worker has this attempt; ``held`` is None if it waits there for a slot."""
    match attempt.state:
        case AttemptState.DISPATCHED | AttemptState.PREFETCHED if held:
            _has_begun(state, attempt, held)
        case AttemptState.DISPATCHED:
            _waits_after_all(state, attempt)
        case AttemptState.RUNNING | AttemptState.FROZEN:
            _note_frozen(state, attempt, held is not None and held.frozen)
        case AttemptState.CANCELLING | AttemptState.RETRACTING:
            _is_called_back(state, attempt, held, seen)
        case AttemptState.LOST if held:
            if held.frozen:
                attempt.freeze(state.now)
            lifecycle.adopt_attempt(state, attempt)
        case AttemptState.LOST:
            lifecycle.retract_lost(state, attempt, "it had not begun when its worker fell silent")


def _has_begun(state: State, attempt: Attempt, held: Held) -> None:
    if attempt.state is AttemptState.PREFETCHED:
        attempt.waited_s = _waited_s(state, attempt, held)
    _become(attempt, AttemptState.FROZEN if held.frozen else AttemptState.RUNNING)
    attempt.started_at = attempt.since if attempt.waited_s else state.now
    if held.frozen:
        attempt.freeze(state.now)
    state.put(attempt)


def _waits_after_all(state: State, attempt: Attempt) -> None:
    """Treat an attempt that was to begin at once, and waits, as prefetched.

    It is retracted if it may take long or needs more than the first slot that falls free.
    """
    _become(attempt, AttemptState.PREFETCHED)
    state.put(attempt)
    if attempt.expected_s > state.ahead_s or attempt.slots > 1:
        lifecycle.retract_attempt(state, attempt, "its slot was no longer free when it came")


def _note_frozen(state: State, attempt: Attempt, is_frozen: bool) -> None:
    if is_frozen == attempt.stands_still:
        return
    if is_frozen:
        attempt.freeze(state.now)
    else:
        attempt.thaw(state.now)
    if attempt.state in LIVE:
        _become(attempt, AttemptState.FROZEN if is_frozen else AttemptState.RUNNING)
    state.put(attempt)


def _is_called_back(state: State, attempt: Attempt, held: Held | None, seen: int) -> None:
    """Note whether a cancelled attempt that its worker still has takes up its slots there."""
    if held and attempt.state is AttemptState.RETRACTING:
        attempt.waited_s = _waited_s(state, attempt, held)
    now = AttemptState.CANCELLING if held else AttemptState.RETRACTING
    if attempt.state is not now:
        _become(attempt, now)
        state.put(attempt)
    _note_frozen(state, attempt, held is not None and held.frozen)
    if seen >= attempt.sent:
        _send_again(state, attempt)


def _waited_s(state: State, attempt: Attempt, held: Held) -> float:
    return max(0.0, state.now - held.wall_s - attempt.dispatched_at)


def _become(attempt: Attempt, new: AttemptState) -> None:
    attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, new)


def _is_not_held(state: State, attempt: Attempt, seen: int) -> None:
    if attempt.state in (AttemptState.RUNNING, AttemptState.FROZEN, AttemptState.LOST):
        lifecycle.lose_attempt(state, attempt, "its worker no longer has it", for_good=True)
    elif seen < attempt.sent:
        return
    elif attempt.state in (AttemptState.DISPATCHED, AttemptState.PREFETCHED):
        _send_again(state, attempt)
    elif attempt.state in (AttemptState.CANCELLING, AttemptState.RETRACTING):
        lifecycle.close_attempt(state, attempt)


def _send_again(state: State, attempt: Attempt) -> None:
    attempt.sent = 0
    state.put(attempt)


def _is_ours(state: State, worker: Worker, stranger: Id) -> bool:
    attempt = state.attempts.get(stranger)  # type: ignore[call-overload]
    return attempt is not None and attempt.worker == worker.name and attempt.state in OCCUPYING
