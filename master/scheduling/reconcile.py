"""What a worker says, held against what is believed: the one path for news, loss, reboot and restart.

The table of architecture.md, row by row; *seen* means that the worker has carried out the Assign that carried
the attempt's last command (before that, silence about it says nothing):

| believed   | held                      | not held                              |
| dispatched | running                   | seen: send the run again              |
| running    | nothing to do             | lost; its task is queued again        |
| cancelling | seen: send the cancel again | seen: cancelled                     |
| lost       | adopt again               | lost for good                         |
| unknown    | send a cancel             |                                       |
"""

from __future__ import annotations

from master.scheduling import lifecycle, presence, states
from master.scheduling.model import OCCUPYING, Attempt, Worker
from master.scheduling.outbox import Outbox
from master.scheduling.state import State
from shared.model import AttemptId, AttemptState, Result
from shared.protocol.messages import Report


def reconcile(state: State, outbox: Outbox, worker: Worker, report: Report) -> None:
    """Take in one Report of the worker's open session."""
    presence.renew_lease(state, worker)
    worker.reported, worker.reported_at = report.seq, state.now
    worker.load, worker.offered = report.load, min(report.load.slots, worker.facts.slots)
    state.save_worker(worker)
    outbox.answer(worker.name)
    for result in report.results:
        _take_result(state, worker, result)
    held = {held.attempt: held for held in report.holding}
    for attempt in list(state.index.of_worker.get(worker.name, {}).values()):
        if attempt.id in held:
            _is_held(state, attempt, report.seen)
            _note_frozen(state, attempt, held[attempt.id].frozen)
        else:
            _is_not_held(state, attempt, report.seen)
    for stranger in held:
        if not _is_ours(state, worker, stranger):
            outbox.cancel_stranger(worker.name, stranger)


def _take_result(state: State, worker: Worker, result: Result) -> None:
    attempt = state.attempts.get(result.attempt)
    if attempt is None or attempt.worker != worker.name:
        state.effects.late.append((worker.name, result))
    else:
        lifecycle.finish_attempt(state, attempt, result)


def _is_held(state: State, attempt: Attempt, seen: int) -> None:
    if attempt.state is AttemptState.DISPATCHED:
        attempt.state = states.check(states.ATTEMPT, attempt.state, AttemptState.RUNNING)
        attempt.started_at = state.now
        state.save_attempt(attempt)
    elif attempt.state is AttemptState.CANCELLING and seen >= attempt.sent:
        _send_again(state, attempt)
    elif attempt.state is AttemptState.LOST:
        lifecycle.adopt_attempt(state, attempt)


def _note_frozen(state: State, attempt: Attempt, frozen: bool) -> None:
    if attempt.frozen == frozen:
        return
    if frozen:
        attempt.freeze(state.now)
    else:
        attempt.thaw(state.now)
    state.save_attempt(attempt)


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


def _is_ours(state: State, worker: Worker, stranger: AttemptId) -> bool:
    attempt = state.attempts.get(stranger)
    return attempt is not None and attempt.worker == worker.name and attempt.state in OCCUPYING
