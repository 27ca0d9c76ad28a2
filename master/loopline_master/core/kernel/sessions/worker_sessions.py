"""Sessions of workers: joining and leaving, Reports in, Assigns out.

A Report is reconciled: the worker's attempts are compared with the scheduler's belief. This is the one path for news,
loss, reboot and restart. It is the table of docs/design/architecture.md, row by row. *Seen* means that the worker has
carried out the Assign with the attempt's last command; before that, a Report without the attempt has no meaning for
it.

| believed   | held                      | not held                              |
| dispatched | running, frozen or prefetched | seen: send the run again          |
| prefetched | running, frozen, or nothing to do | seen: send the run again      |
| running    | frozen, or nothing to do  | lost; its task is queued again        |
| frozen     | running, or nothing to do | lost; its task is queued again        |
| delivering | nothing to do             | lost; its task is queued again        |
| cancelling, retracting | seen: send the cancel again | seen: cancelled         |
| lost       | adopt; waiting: retract   | lost for good                         |
| unknown    | send a cancel             |                                       |

An attempt that has ended at its worker but has not delivered its result is *delivering*. It takes up no slot; if it
was believed to be cancelling, it is retracting from then on.
"""

from __future__ import annotations

from collections.abc import Set
from itertools import islice

from loopline_master.core.estimates import measure
from loopline_master.core.kernel import lifecycle, transitions
from loopline_master.core.kernel.effects import Declined, Done, Reply
from loopline_master.core.kernel.entities import LIVE, OCCUPYING, Attempt, Worker
from loopline_master.core.kernel.kernel_events import WorkerJoined
from loopline_master.core.kernel.sessions import figures, leases, lost_workers
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptId, AttemptState, Facts, Held, TaskState
from loopline_shared.protocol.attempt_ranges import attempts_of
from loopline_shared.protocol.gang_messages import Word
from loopline_shared.protocol.worker_link import (
    MAX_LONG_RUNS_PER_ASSIGN,
    MAX_RUNS_PER_ASSIGN,
    MAX_STRANGERS_PER_ASSIGN,
    Assign,
    Report,
    Run,
)
from loopline_shared.spec import MAX_RUN_CHARACTERS

_RUNS = AttemptState.RUNNING
_NOTABLE_S = 0.01
"""Time in a slot without work that is noted: shorter ones are of no importance."""
Id = tuple[int, int, int]  # equal to an AttemptId

_INPUT_CHARACTERS = 150
"""Length limit for one of a task's own inputs, besides its path."""
_AT_WORK = (AttemptState.PREPARED, AttemptState.RUNNING, AttemptState.FROZEN, AttemptState.DELIVERING)
"""States of an attempt that its worker names in every Report."""
_TO_RUN = (AttemptState.DISPATCHED, AttemptState.PREFETCHED)
_TO_CANCEL = (AttemptState.CANCELLING, AttemptState.RETRACTING)


def join(state: State, event: WorkerJoined) -> Reply:
    """Open a session. The worker's attempts are unknown until its first Report."""
    worker = state.workers.get(event.worker)
    if worker is None and lost_workers.is_full(state):
        message = f"{state.settings.max_workers:,} workers are known, which is this master's limit"
        hint = "`loopline forget` those that do not come back, or raise max_workers in the master's settings"
        return Declined(503, "too_many_workers", message, hint)
    state.effects.gone = tuple(name for name in state.effects.gone if name != event.worker)
    facts = figures.possible_facts(event.facts)
    if worker is None:
        worker = Worker(event.worker, event.boot, facts, joined_at=state.now, lease_until=0.0)
    elif worker.session is not None and _is_another_computer(worker.facts, event.facts):
        message = f"another computer works as {worker.name}: this one has a copy of its identity"
        hint = "on one of the two: `loopline leave --here-only`, then join again with a line of `loopline token join`"
        return Declined(409, "same_identity", message, hint)
    elif worker.session is not None:
        state.effects.closes.append((worker.name, worker.session))
    if worker.boot != event.boot:  # the agent's facts stay true if only its link is new
        for forget in state.wings.worker_left:
            forget(worker.name)
    leases.disconnect(state, worker)  # so it leaves the requirement classes that its old facts met
    worker.session, worker.boot, worker.facts = event.session, event.boot, facts
    worker.overstated += facts is not event.facts
    worker.kept_until = None
    leases.renew(state, worker)
    state.put(worker)
    return Done()


def _is_another_computer(one: Facts, other: Facts) -> bool:
    """True if two agents certainly run on two computers, or on one that was restarted in between."""
    return bool(one.machine and other.machine) and one.machine != other.machine


def leave(state: State, name: str, session: int) -> Reply:
    """Close the session of a worker; it is believed to be working until its lease expires."""
    worker = state.workers.get(name)
    if worker is not None and worker.session == session:
        for forget in state.wings.worker_left:
            forget(name)
        leases.disconnect(state, worker)
    return Done()


def close_all(state: State) -> None:
    """Close every session: the master has started, and no link is open."""
    for worker in state.workers.values():
        leases.disconnect(state, worker)


def reconcile(state: State, outbox: Outbox, worker: Worker, report: Report) -> None:
    """Process one Report of the worker's open session."""
    load = figures.possible_load(report.load, worker.facts)
    offered = load.slots if load.slots < worker.facts.slots else worker.facts.slots
    leases.renew(state, worker)
    before = worker.load
    worker.reported, worker.reported_at, worker.load, worker.offered = report.seq, state.grid.now, load, offered
    state.put(worker)
    for take_in in state.wings.load_changes:
        take_in(worker, before)
    outbox.answer(worker.name)
    for part, hear in state.wings.parts:
        if (told := getattr(report, part)) is not None:
            hear(worker, told)
    for result in report.results:
        attempt = state.attempts.get(result.attempt)
        if attempt is None or attempt.worker != worker.name:
            possible = figures.bounded(state, worker, result, worker.joined_at, flags=False)
            state.effects.late.append((worker.name, possible))
            continue
        possible = figures.bounded(state, worker, result, attempt.dispatched_at)
        if state.jobs[attempt.job].nodes > 1:
            state.lead.take_result(attempt, possible)
        else:
            lifecycle.finish_attempt(state, attempt, possible)
    names_some = report.holding or report.waiting or report.delivering or report.members
    if names_some or worker.name in state.index.attempts.of_worker:
        _compare(state, outbox, worker, report)
        if state.lead.launches:
            state.lead.follow(worker, report.seen)


def _compare(state: State, outbox: Outbox, worker: Worker, report: Report) -> None:
    """Compare the attempts that the worker reports with those it is believed to have."""
    begun, waiting = {held.attempt: held for held in report.holding}, set(attempts_of(report.waiting))
    queue = state.index.attempts.queues.of_worker.get(worker.name, {}).keys()
    delivering = set(attempts_of(report.delivering)) if report.delivering else ()
    strangers = [*begun, *(waiting - queue), *delivering]
    compared = _to_compare(state, worker, queue, waiting)
    if report.members:
        strangers += [member.attempt for member in report.members]
        compared = state.lead.note_members(report, compared)
    for attempt in compared:
        held = begun.get(attempt.id)
        if delivering and attempt.id in delivering:
            _is_delivering(state, attempt, report.seen)
        elif held is None and attempt.id not in waiting:
            _is_not_held(state, attempt, report.seen)
        elif attempt.state is not _RUNS or not attempt.is_set_up or (held is not None and held.frozen):
            _is_held(state, attempt, held, report.seen)
    for stranger in strangers:
        if not (_is_ours(state, worker, stranger) or outbox.cancel_stranger(worker.name, stranger)):
            break  # the next Report names the rest


def _to_compare(state: State, worker: Worker, queue: Set[AttemptId], waiting: set[Id]) -> list[Attempt]:
    """Return the worker's attempts, except those that wait in its queue as before.

    These make up most of a long queue, and require no action.
    """
    attempts = state.index.attempts
    ours = attempts.of_worker.get(worker.name, {})
    if not queue or worker.name in attempts.frozen_on:
        return list(ours.values())
    others = (attempt for number, attempt in ours.items() if number not in queue)
    found = list(islice(others, len(ours) - len(queue)))  # usually they came before the queue
    return [*found, *(ours[number] for number in sorted(queue - waiting))]


def _is_held(state: State, attempt: Attempt, held: Held | None, seen: int) -> None:
    """Handle an attempt that the worker holds; ``held`` is None if it waits there for a slot."""
    match attempt.state:
        case AttemptState.DISPATCHED | AttemptState.PREFETCHED | AttemptState.PREPARED if held:
            _has_begun(state, attempt, held)
        case AttemptState.DISPATCHED:
            _treat_as_prefetched(state, attempt)
        case AttemptState.RUNNING | AttemptState.FROZEN:
            _note_set_up(state, attempt, held)
            _note_frozen(state, attempt, held is not None and held.frozen)
        case AttemptState.CANCELLING | AttemptState.RETRACTING:
            _is_called_back(state, attempt, held, seen)
        case AttemptState.LOST if held:
            if held.frozen:
                attempt.freeze(state.now)
            attempt.started_at = attempt.started_at or _began_at(state, attempt, held)
            attempt.slot = held.slot or attempt.slot
            _note_set_up(state, attempt, held)
            if state.jobs[attempt.job].nodes > 1 and state.lead.leads(attempt):
                state.lead.come_back(attempt, AttemptState.FROZEN if held.frozen else _RUNS)
            else:
                lifecycle.adopt_attempt(state, attempt, held.wall_s)
        case AttemptState.LOST:
            lifecycle.retract_lost(state, attempt, "it had not begun when its worker fell silent")


def _is_delivering(state: State, attempt: Attempt, seen: int) -> None:
    """Handle an attempt that has ended at its worker, and whose result is on the way."""
    match attempt.state:
        case AttemptState.DELIVERING:
            return
        case AttemptState.CANCELLING | AttemptState.RETRACTING:
            _is_called_back(state, attempt, None, seen)
        case AttemptState.LOST if state.jobs[attempt.job].nodes > 1 and state.lead.leads(attempt):
            state.lead.come_back(attempt, AttemptState.DELIVERING)
        case AttemptState.LOST:
            lifecycle.adopt_attempt(state, attempt, is_delivering=True)
        case _:
            attempt.thaw(state.now)
            _become(attempt, AttemptState.DELIVERING)
            state.put(attempt)


def _has_begun(state: State, attempt: Attempt, held: Held) -> None:
    attempt.started_at = _began_at(state, attempt, held)
    if held.slot:
        attempt.slot = held.slot
    _set_up(state, attempt, held)
    if attempt.state is AttemptState.PREFETCHED:
        attempt.waited_s = attempt.started_at - attempt.dispatched_at
    _become(attempt, AttemptState.FROZEN if held.frozen else AttemptState.RUNNING)
    if held.frozen:
        attempt.freeze(state.now)
    state.put(attempt)


def _treat_as_prefetched(state: State, attempt: Attempt) -> None:
    """Treat an attempt that should have begun at once, but waits, as prefetched.

    It is retracted if it may take long, needs more than one slot, or holds units, which others need.
    """
    _become(attempt, AttemptState.PREFETCHED)
    state.put(attempt)
    is_long = attempt.expected_s > state.prefetch_s
    if is_long or attempt.slots > 1 or state.jobs[attempt.job].holds_units:
        lifecycle.retract_attempt(state, attempt, "its slot was no longer free when it came")


def _note_set_up(state: State, attempt: Attempt, held: Held | None) -> None:
    """Note whether the attempt still waits for inputs or software, and for how long it did: this is no work."""
    if held is not None and held.is_set_up is not attempt.is_set_up:
        _set_up(state, attempt, held)
        state.put(attempt)


def _set_up(state: State, attempt: Attempt, held: Held) -> None:
    attempt.is_set_up = held.is_set_up
    if held.is_set_up and held.in_slot_s >= held.wall_s + _NOTABLE_S:
        in_slot_s = measure.ran_s(attempt, attempt.started_at or attempt.since, state.now)
        attempt.fetch_s = max(0.0, in_slot_s - held.wall_s)


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
        attempt.waited_s = _began_at(state, attempt, held) - attempt.dispatched_at
    now = AttemptState.CANCELLING if held else AttemptState.RETRACTING
    if attempt.state is not now:
        _become(attempt, now)
        state.put(attempt)
    _note_frozen(state, attempt, held is not None and held.frozen)
    if seen >= attempt.sent:
        _send_again(state, attempt)


def _began_at(state: State, attempt: Attempt, held: Held) -> float:
    """Return when the attempt took its slot, by its worker's count: the Report itself may be late."""
    return max(attempt.dispatched_at, state.now - (held.in_slot_s or held.wall_s))


def _become(attempt: Attempt, new: AttemptState) -> None:
    attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, new)


def _is_not_held(state: State, attempt: Attempt, seen: int) -> None:
    if attempt.state in _AT_WORK or attempt.state is AttemptState.LOST:
        lifecycle.lose(state, attempt, "its worker no longer has it", for_good=True)
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


class Outbox:
    """Collects the workers that one step must write to; commands follow from the attempts that it changed."""

    def __init__(self) -> None:
        self._concerned: dict[str, None] = {}
        self._runs: dict[str, list[Run]] = {}
        self._cancels: dict[str, list[AttemptId]] = {}
        self._gently: dict[str, list[AttemptId]] = {}  # the subset that gets SIGTERM first
        self._words: dict[str, list[Word]] = {}  # to members of gangs
        self._lengths: dict[str, tuple[int, int]] = {}  # characters of this many of these runs

    def answer(self, worker: str) -> None:
        """Answer the worker's Report with an Assign, like every Report."""
        self._concerned[worker] = None

    def cancel_stranger(self, worker: str, stranger: Id) -> bool:
        """Cancel an attempt that is unknown here; False if this frame has reached its limit of them."""
        cancels = self._cancels.setdefault(worker, [])
        cancels.append(AttemptId(*stranger))
        return len(cancels) < MAX_STRANGERS_PER_ASSIGN

    def seal(self, state: State) -> dict[str, Assign]:
        """Return the numbered frames, and note on each attempt which frame carries its command.

        Only workers that have reported in their open session get one, because their attempts are known. A command
        that does not fit into a frame is sent when the worker's next Report shows that the worker does not hold the
        attempt.
        """
        workers = state.workers
        for attempt in state.effects.attempts.values():
            if attempt.sent == 0 and attempt.ended_at is None and workers[attempt.worker].reported:
                self._command(state, attempt, workers[attempt.worker])
        return {name: self._assign(state, workers[name]) for name in self._concerned if workers[name].reported}

    def _command(self, state: State, attempt: Attempt, worker: Worker) -> None:
        name = worker.name
        if attempt.state in _TO_RUN:
            runs = self._runs.setdefault(name, [])
            if len(runs) >= MAX_LONG_RUNS_PER_ASSIGN and not self._has_space(name, runs):
                return
            job = state.jobs[attempt.job]
            runs.append(run := job.runs.run(attempt.id))
            if job.nodes > 1:
                run.gang = state.lead.place_of(attempt)
        elif attempt.state in _TO_CANCEL:
            self._cancels.setdefault(name, []).append(attempt.id)
            task = state.tasks[attempt.task_id]
            if task.state is TaskState.CANCELLED or (worker.draining and task.is_open):  # no other attempt decided it
                self._gently.setdefault(name, []).append(attempt.id)
        elif state.jobs[attempt.job].nodes > 1 and (word := state.lead.word_for(attempt, worker)):
            self._words.setdefault(name, []).append(word)
        elif attempt.state is not AttemptState.FROZEN or not attempt.reason:  # else its wing adds the command
            return
        attempt.sent = worker.assigned + 1
        self._concerned[name] = None

    def _has_space(self, worker: str, runs: list[Run]) -> bool:
        """True if one more run fits into the worker's frame, however long. A few always fit; they are not counted."""
        length, counted = self._lengths.get(worker, (0, 0))
        length += sum(map(_length, runs[counted:]))
        self._lengths[worker] = length, len(runs)
        return len(runs) < MAX_RUNS_PER_ASSIGN and length <= (MAX_LONG_RUNS_PER_ASSIGN - 1) * MAX_RUN_CHARACTERS

    def _assign(self, state: State, worker: Worker) -> Assign:
        worker.assigned += 1
        state.effects.workers[worker.name] = worker
        name = worker.name
        runs = tuple(self._runs[name]) if name in self._runs else ()
        cancels = tuple(self._cancels[name]) if name in self._cancels else ()
        assign = Assign(worker.assigned, worker.reported, runs, cancels)
        if name in self._words:
            assign.words = tuple(self._words[name])
        if name in self._gently:
            assign.gently = tuple(self._gently[name])
        for add in state.wings.assign:
            add(worker, assign)
        return assign


def _length(run: Run) -> int:
    """Return the upper bound of the run's characters; the line of a row file is filled in later."""
    if run.row_file is not None:
        return MAX_RUN_CHARACTERS
    pairs = (*run.parameters.items(), *run.environment.items())
    named = sum(len(name) + len(str(value)) for name, value in pairs)
    inputs = sum(len(path) + _INPUT_CHARACTERS for path in run.own_inputs)
    hosts = sum(map(len, run.gang.hosts)) if run.gang else 0
    return named + inputs + hosts + sum(map(len, (*run.command, *run.outputs, *run.optional_outputs)))
