"""What a worker says, held against what is believed: the one path for news, loss, reboot and restart.

The table of architecture.md, row by row; *seen* means that the worker has carried out the Assign that carried
the attempt's last command (before that, silence about it says nothing):

| believed   | held                      | not held                              |
| dispatched | running, or still waiting | seen: send the run again              |
| running    | nothing to do             | lost; its task is queued again        |
| cancelling | seen: send the cancel again | seen: cancelled                     |
| lost       | adopt; waiting: cancel    | lost for good                         |
| unknown    | send a cancel             |                                       |
"""

from __future__ import annotations

from itertools import islice

from loopline_master.core import lifecycle, membership, transitions
from loopline_master.core.entities import OCCUPYING, Attempt, Worker
from loopline_master.core.frames import Outbox
from loopline_master.core.state import State
from loopline_shared.model import AttemptId, AttemptState, Held
from loopline_shared.protocol.attempt_ranges import attempts_of
from loopline_shared.protocol.messages import Report

_RUNS = AttemptState.RUNNING
Id = tuple[int, int, int]
"""Equal to an AttemptId."""


def reconcile(state: State, outbox: Outbox, worker: Worker, report: Report) -> None:
    """Take in one Report of the worker's open session."""
    until, load = worker.lease_until, report.load
    offered = load.slots if load.slots < worker.facts.slots else worker.facts.slots
    membership.renew_lease(state, worker)
    is_as_before = worker.offered == offered and worker.lease_until == until
    worker.reported, worker.reported_at, worker.load, worker.offered = report.seq, state.grid.now, load, offered
    if is_as_before:
        state.note_load(worker)
    else:
        state.save_worker(worker)
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
    """What it holds, as it says, with what it is believed to hold."""
    begun, waiting = {held.attempt: held for held in report.holding}, set(attempts_of(report.waiting))
    queue = state.index.attempts.queues.of_worker.get(worker.name, {}).keys()
    strangers = [*begun, *(waiting - queue)]
    for attempt in _worth_a_look(state, worker, waiting):
        held = begun.get(attempt.id)
        if held is None and attempt.id not in waiting:
            _is_not_held(state, attempt, report.seen)
        elif attempt.state is not _RUNS or (held is not None and held.frozen) != attempt.frozen:
            _note(state, attempt, held)
            _is_held(state, attempt, held, report.seen)
    for stranger in strangers:
        if not _is_ours(state, worker, stranger):
            outbox.cancel_stranger(worker.name, AttemptId(*stranger))


def _worth_a_look(state: State, worker: Worker, waiting: set[Id]) -> list[Attempt]:
    """The worker's attempts, but for those that wait there as they did: most of a long queue, of which nothing
    follows.
    """
    attempts = state.index.attempts
    ours, queue = attempts.of_worker.get(worker.name, {}), attempts.queues.of_worker.get(worker.name)
    if queue is None or worker.name in attempts.frozen_on:
        return list(ours.values())
    others = (attempt for number, attempt in ours.items() if number not in queue)
    found = list(islice(others, len(ours) - len(queue)))  # which came before the queue, as a rule
    return [*found, *(ours[number] for number in sorted(queue.keys() - waiting))]


def _is_held(state: State, attempt: Attempt, held: Held | None, seen: int) -> None:
    """``None``: it waits for a slot."""
    if attempt.state is AttemptState.DISPATCHED and held:
        attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, AttemptState.RUNNING)
        attempt.started_at = attempt.since if attempt.waited_s else state.now
        state.save_attempt(attempt)
    elif attempt.state is AttemptState.CANCELLING and seen >= attempt.sent:
        _send_again(state, attempt)
    elif attempt.state is AttemptState.LOST and not held:
        lifecycle.cancel_attempt(state, attempt, "it had not begun when its worker fell silent")
    elif attempt.state is AttemptState.LOST:
        lifecycle.adopt_attempt(state, attempt)


def _note(state: State, attempt: Attempt, held: Held | None) -> None:
    """Whether it stands still, and whether it waits for a slot: its worker knows. What was to begin at once, and may
    take long or needs more than the first slot that falls free, does not wait until it may begin after all.
    """
    was_waiting, waits = attempt.waiting, held is None and attempt.state is not AttemptState.RUNNING
    is_frozen = held is not None and held.frozen
    if attempt.frozen == is_frozen and was_waiting == waits:
        return
    if was_waiting and held:
        attempt.waited_s = max(0.0, state.now - held.wall_s - attempt.dispatched_at)
    attempt.waiting = waits
    _note_frozen(state, attempt, is_frozen)
    if attempt.state is AttemptState.DISPATCHED and held:
        return  # it begins, and is saved as one that has
    state.save_attempt(attempt)
    if attempt.is_queued and not was_waiting and (attempt.expected_s > state.ahead_s or attempt.slots > 1):
        lifecycle.take_back(state, attempt, "its slot was no longer free when it came")


def _note_frozen(state: State, attempt: Attempt, frozen: bool) -> None:
    if frozen and not attempt.frozen:
        attempt.freeze(state.now)
    elif not frozen:
        attempt.thaw(state.now)


def _is_not_held(state: State, attempt: Attempt, seen: int) -> None:
    if attempt.state in (AttemptState.RUNNING, AttemptState.LOST):
        lifecycle.lose_attempt(state, attempt, "its worker no longer has it", for_good=True)
    elif seen < attempt.sent:
        return
    elif attempt.state is AttemptState.DISPATCHED:
        _send_again(state, attempt)
    elif attempt.state is AttemptState.CANCELLING:
        lifecycle.close_attempt(state, attempt)


def _send_again(state: State, attempt: Attempt) -> None:
    attempt.sent = 0
    state.save_attempt(attempt)


def _is_ours(state: State, worker: Worker, stranger: Id) -> bool:
    attempt = state.attempts.get(stranger)  # type: ignore[call-overload]
    return attempt is not None and attempt.worker == worker.name and attempt.state in OCCUPYING
