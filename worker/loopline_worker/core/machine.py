"""The worker as a pure machine: ``Machine.step(events, now) -> Instructions``. No I/O, no clock, no randomness.

The agent, the simulator and the tests post events (events.py) in the order in which they happened. A step applies
them and returns instructions (instructions.py). The caller writes the step's journal entry first and then obeys:
*commit, then speak*. If the disk does not take the entry, WriteFailed reports that, and the entry's results stay here
until they are on disk. Only the machine knows the state of an attempt; processes, files and frames belong to the
agent, which names them by the attempt's id.

*States* (transitions.py). An attempt is WAITING from the Assign that brings it until it has its slots, and RUNNING in
them. It may be FROZEN for the owner. It is ENDING when the machine has ended it, or when its processes are gone and
its result is on the way. The result frees its slots. It is UNSENT as soon as the journal has it, or DELIVERING before
that, while the disk or the master's store lacks something. It is SENT with a Report, and forgotten when an Assign
acknowledges that Report; a new session makes it UNSENT again. Every message of a master is handled in every state,
even if only by ignoring it.

*The queue.* Attempts begin in the order of arrival, as soon as their slots are free: no frame is needed between two
tasks. An attempt that fits may pass one that needs more slots than are free.

*The retract rule.* If tasks are short, the first waiting attempts are PREFETCHED: a supervisor holds them, and begins
each in the slot of a task that ended, so there are never more running than slots (Followed). No later attempt begins
before them: if a slot is free anyway, they are retracted first. Nothing begins until the outcome of the retract is
known, which is an event. Attempts that were Returned wait again, ahead of all others. An attempt that is still
prefetched at Retracted has begun; its Followed will come.

*The doubt rule.* After a restart, in a new session, or when the link was silent for a lease, the master may have
given the waiting attempts to other workers. None of them begins until an Assign answers a Report of this session: by
then the master has seen what waits here, and would have cancelled it.

*Lives* (kept_results.py). Each restore of the master's database begins a new life of it. When a Welcome names a new
life, attempts of the earlier one are ended and forgotten, and no Report mentions them.

*Wings* (machine_wing.py). An optional feature, such as gangs (gang_members.py), is a wing: the machine is given its
class, and knows only the hooks. An attempt that a wing starts is PREPARING in its slots, then PREPARED, and RUNNING
when the wing starts it.

*The owner rule* (owner.py). Each reading of the idle detector leads to a decision: the number of slots that may be
used. The oldest attempts keep running, the others are frozen, and preempted after the grace time. While an attempt is
frozen, memory is short, no slot is allowed, or this computer has an obstacle, nothing begins, and waiting attempts
are preempted, because they could start sooner elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from loopline_shared.model import MAX_ID, AttemptId, Outcome, Result
from loopline_shared.protocol.worker_link import Run
from loopline_worker.core import events as on
from loopline_worker.core.attempts import (
    Admission,
    AttemptInventory,
    AttemptRecord,
    Attempts,
    inventory_of,
)
from loopline_worker.core.instructions import Freeze, Instructions, Log, LogStart, Urgency
from loopline_worker.core.kept_results import KeptResults
from loopline_worker.core.machine_wing import DraftReport, Handler, MachineWing
from loopline_worker.core.owner import Owner
from loopline_worker.core.owner_policy import Decision, OwnerPreferences, Policy
from loopline_worker.core.transitions import State

_TERMINATED = 15  # SIGTERM
_AGAIN = "its worker's agent had to be started again"
_DEDICATED = OwnerPreferences(Policy.ALWAYS, on_battery=True)


class Machine:
    """Machine of a worker: its attempts, its owner's decision, and its results until the master has them."""

    def __init__(
        self,
        slots: int = MAX_ID,
        preferences: OwnerPreferences = _DEDICATED,
        grace_s: float = 0.0,
        wings: Sequence[type[MachineWing]] = (),
    ) -> None:
        """``slots``: maximum that may ever be used; ``grace_s``: an attempt that is frozen longer is preempted."""
        self.attempts = Attempts()
        self._owner = Owner(self.attempts, preferences, grace_s, slots)
        self._admission = Admission(self.attempts)
        self._results = KeptResults(self.attempts)
        self._obstacle = ""  # why no slots are offered even if the owner allows some
        self.wing_obstacle = ""
        self._trouble = ""  # last failure of this computer, until files can be written again
        self._is_stopping = False
        self._leaving: AttemptId | None = None  # preempted because the disk is full; its files may not be gone yet
        self.owes_report = False
        self.must_review = False  # the running attempts may not match the owner's decision
        self._steps = Instructions()
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            on.Restored: self._restored,
            on.Connected: self._connected,
            on.Welcomed: self._welcomed,
            on.LinkSilent: self._link_silent,
            on.Assigned: self._assigned,
            on.Reported: self._reported,
            on.Followed: self._followed,
            on.Returned: self._returned,
            on.Retracted: self._retracted,
            on.AttemptEnded: self._ended,
            on.Cleared: self._cleared,
            on.WriteFailed: self._write_failed,
            on.Delivered: lambda event, now: self._results.delivered(event.result),
            on.OwnerObserved: self._owner_observed,
            on.FreezeCompleted: self._freeze_completed,
            on.DiskObserved: self._disk_observed,
            on.Stopping: self._stopping,
        }
        self._wings = tuple(wing(self) for wing in wings)
        for wing in self._wings:
            for kind, handle in wing.handlers().items():
                self._handlers[kind] = partial(self._for_wing, handle)

    def step(self, events: Iterable[on.Event], now: float, room: int = 0) -> Instructions:
        """Apply the events. ``room``: how many more attempts may be prefetched."""
        self._steps = steps = Instructions()
        for event in events:
            self._handlers[type(event)](event, now)
        if self.attempts.disowned:
            steps.journal.over += self.attempts.forget_disowned()
        if self.attempts.ending_gently and self.decision.slots < self.attempts.taken and not self._is_stopping:
            steps.todo += self.attempts.kill_gentle()
        if self.must_review:
            self.must_review = False
            self._is_news(self._owner.review(now, steps.todo))
        if self.is_busy:
            self._admission.serve(self.decision.slots, self.pause_reason, self.decision.why, room, steps)
            steps.is_busy = self.is_busy
        if self.wing_obstacle or (self.attempts.by_wings and not self._admission.is_retracting):
            for wing in self._wings:
                wing.finish_step(self.decision.slots, self.pause_reason, now, steps)
        self._admission.has_retracted = False
        if self.attempts.unsent:
            steps.report = Urgency.NOW
        elif self.owes_report and steps.report is Urgency.NOT:
            steps.report = Urgency.SOON
        steps.idle_slots, steps.trouble = self._owner.decision.slots - self.attempts.taken, self._trouble
        return steps

    # Its state, for the agent.

    @property
    def life(self) -> str:
        """Return the life of the master's database that all attempts here come from; empty: not known."""
        return self._results.life

    def inventory(self) -> AttemptInventory:
        """Return the attempts for the next Report. Post Reported when it has left."""
        return inventory_of(self.attempts)

    def report(self, draft: DraftReport) -> None:
        """Have the wings add their parts to the next Report."""
        if self.attempts.by_wings:
            for wing in self._wings:
                wing.report(draft)

    @property
    def has_results(self) -> bool:
        """True if a result waits to be sent: a Report is due at once."""
        return bool(self.attempts.unsent)

    @property
    def has_news(self) -> bool:
        """True if a Report would tell the master anything new."""
        return self.owes_report or self.has_results

    @property
    def is_busy(self) -> bool:
        """True if an attempt waits here for a slot."""
        return bool(self.attempts.waiting or self.attempts.prefetched)

    @property
    def is_idle(self) -> bool:
        """True if nothing is in hand, and the master has every result on its disk."""
        return not len(self.attempts)

    @property
    def is_in_use(self) -> bool:
        """True if the owner uses the computer or presence is unknown; False if the owner policy does not ask."""
        return self._owner.is_present

    @property
    def freezing(self) -> int:
        """Return the number of attempts that are being frozen and may still run."""
        return self._owner.freezing

    @property
    def decision(self) -> Decision:
        """Return the owner policy's current decision."""
        return self._owner.decision

    @property
    def slots_offered(self) -> int:
        """Return the number of slots that the master may use."""
        return 0 if self._obstacle or self.wing_obstacle else self._owner.slots_allowed

    @property
    def pause_reason(self) -> str:
        """Return why nothing starts for now, so that waiting attempts are preempted; empty if attempts may start."""
        return self._obstacle or self.wing_obstacle or self._owner.pause_reason

    # The link.

    def _restored(self, event: on.Restored, now: float) -> None:
        begun = (
            Result(attempt, Outcome.GIVEN_BACK, reason=_AGAIN, took_down=event.agent_died) for attempt in event.begun
        )
        for result in (*event.results, *begun):
            self._results.keep(AttemptRecord(result.attempt, State.UNSENT), result, self._steps)
        for run in event.waiting:
            self._queue(run)
        self._results.life = event.life
        self.attempts.doubt()
        self.owes_report = False  # the first Report of a session is complete anyway

    def _connected(self, event: on.Connected, now: float) -> None:
        self._results.send_again()
        self._doubt()

    def _welcomed(self, event: on.Welcomed, now: float) -> None:
        """End and forget attempts of another life of the master's database."""
        if self._results.begin_life(event.life, self._steps):
            self._cancel(list(self.attempts.disowned))

    def _link_silent(self, event: on.LinkSilent, now: float) -> None:
        self._doubt()

    def _doubt(self) -> None:
        self._admission.retract(self._steps)
        self.attempts.doubt()

    def _assigned(self, event: on.Assigned, now: float) -> None:
        """Apply an Assign. Runs of known attempts and cancels of unknown ones are ignored."""
        assign = event.assign
        self._results.acknowledged(assign.seen, self._steps)
        unwanted = dict.fromkeys(assign.cancel)
        if unwanted:
            self._cancel([one for one in unwanted if one not in assign.preempt], assign.gently)
            self._owner.preempt(assign.preempt, self._steps.todo)
        if assign.run:
            self._steps.journal.came.append((assign, event.frame))
            for run in assign.run:
                if run.attempt not in unwanted:
                    self._queue(run)
        for wing in self._wings:
            if self.attempts.by_wings or any(getattr(assign, field) for field in wing.reads):
                wing.assign(assign, now, self._steps)
        if assign.seen > 0:
            self.attempts.doubted.clear()

    def _queue(self, run: Run) -> None:
        if run.attempt not in self.attempts:
            by_wing = any(getattr(run, field) for wing in self._wings for field in wing.starts)
            self.attempts.add(AttemptRecord(run.attempt, State.WAITING, run, by_wing=by_wing))
            self.owes_report = True

    def _cancel(self, unwanted: Iterable[AttemptId], gently: Sequence[AttemptId] = ()) -> None:
        """Drop waiting attempts and end running ones. Prefetched ones are retracted first, to be dropped."""
        if any(attempt in self.attempts.prefetched for attempt in unwanted):
            self._admission.retract(self._steps)
        for attempt_id in unwanted:
            attempt = self.attempts.get(attempt_id)
            if attempt is None or attempt.state in (State.UNSENT, State.SENT):
                self.owes_report = True  # the master learns from it that the attempt is not here
            elif attempt.state is State.WAITING:
                self.attempts.drop(attempt, Outcome.CANCELLED)
            elif attempt.state not in (State.ENDING, State.DELIVERING):
                self._owner.leaves(attempt)
                has_time = attempt_id in gently and attempt.state is State.RUNNING
                self._steps.todo.append(self.attempts.end(attempt, Outcome.CANCELLED, gently=has_time))

    def _reported(self, event: on.Reported, now: float) -> None:
        self._results.sent(event)
        self.owes_report = False

    # What runs.

    def _followed(self, event: on.Followed, now: float) -> None:
        after, before = self.attempts.get(event.after), self.attempts.get(event.before)
        assert before, f"{event.before} is unknown, and was followed"
        assert after, f"{event.after} is unknown, and has begun"
        assert after.run, f"{event.after} is an earlier agent's, and has begun"
        was_frozen, was_ending = before.state is State.FROZEN, before.state is State.ENDING
        self.attempts.succeed(before, after)
        if not was_ending:
            self.attempts.move(before, State.ENDING)
        self._steps.todo.append(LogStart(after.run))
        if after.state is State.PREFETCHED:  # it may have been cancelled
            self.attempts.move(after, State.FROZEN if was_frozen else State.RUNNING)
            self._owner.followed(before, after)
            if was_frozen:
                self._steps.todo.append(Freeze(after.id))
        self.must_review |= was_ending  # the owner's decision may not allow its slot

    def _returned(self, event: on.Returned, now: float) -> None:
        """Put these back at the head of the queue, in their order. Those cancelled since then end here."""
        theirs = set(event.attempts)
        for attempt_id in reversed([*self.attempts.prefetched, *self.attempts.ending]):
            attempt = self.attempts.get(attempt_id)
            if attempt_id not in theirs or attempt is None:
                continue
            if attempt.verdict:
                self.attempts.drop(attempt, *attempt.verdict)
            else:
                self.attempts.move(attempt, State.WAITING)
                self.attempts.waiting.move_to_end(attempt_id, last=False)

    def _retracted(self, event: on.Retracted, now: float) -> None:
        self._admission.retracted()

    def _for_wing(self, handle: Handler, event: on.WingEvent, now: float) -> None:
        handle(event, now, self._steps)

    def _ended(self, event: on.AttemptEnded, now: float) -> None:
        result = self._as_stopped(event.result)
        attempt = self.attempts.get(result.attempt)
        if attempt is None:
            attempt = AttemptRecord(result.attempt, State.UNSENT)
        if attempt.result is None:
            self._owner.leaves(attempt)
            self.attempts.free(attempt)
            self._results.keep(attempt, result, self._steps)
            self._steps.journal.results.append(result)
            self.must_review |= bool(self.attempts.frozen)
        if event.trouble:
            self._trouble = event.trouble
            self._obstruct(event.trouble)
        if not event.leaves_folder:
            self._clear(result.attempt)

    def _as_stopped(self, result: Result) -> Result:
        """Return a result as given back if SIGTERM ended it: a cluster sends that to the whole allocation."""
        if not self._is_stopping or result.exit_code != -_TERMINATED:
            return result
        return replace(result, outcome=Outcome.GIVEN_BACK, reason=self._obstacle)

    def _cleared(self, event: on.Cleared, now: float) -> None:
        self._clear(event.attempt)

    def _clear(self, attempt: AttemptId) -> None:
        if attempt == self._leaving:
            self._leaving = None

    def _write_failed(self, event: on.WriteFailed, now: float) -> None:
        """Offer no slots until files can be written."""
        self._results.deliver_again(event, self._steps)
        self._trouble = event.trouble
        self._obstruct(event.trouble)

    # The computer and its owner.

    def _owner_observed(self, event: on.OwnerObserved, now: float) -> None:
        self._is_news(self._owner.observed(event, now, self._steps.todo))

    def _freeze_completed(self, event: on.FreezeCompleted, now: float) -> None:
        self._is_news(self._owner.freeze_completed(event.attempt, now, self._steps.todo))

    def _disk_observed(self, event: on.DiskObserved, now: float) -> None:
        if event.is_writable:
            self._trouble = ""
        self._obstruct(self._trouble or event.obstacle)
        for attempt in self.attempts.frozen:  # a process forked during the freeze may still run
            self._steps.todo.append(Freeze(attempt))
        if event.shortage and self._leaving is None:
            self._relieve_disk(event.shortage)

    def _relieve_disk(self, shortage: str) -> None:
        """Preempt the youngest attempt; the next one once the files of this one are gone."""
        in_hand = self.attempts.oldest_first()
        if in_hand:
            self._leaving = in_hand[-1].id
            self._owner.leaves(in_hand[-1])
            self._steps.todo.append(self.attempts.end(in_hand[-1], Outcome.GIVEN_BACK, shortage))

    def _stopping(self, event: on.Stopping, now: float) -> None:
        self._is_stopping = True
        self._obstacle = event.reason
        self._owner.stop(event.reason, now, self._steps.todo)
        self._is_news(True)

    def _obstruct(self, obstacle: str) -> None:
        """Offer no slots while there is an obstacle."""
        if self._is_stopping:
            return
        has_changed = bool(obstacle) is not bool(self._obstacle)
        self._obstacle = obstacle
        if has_changed:
            text = f"offering no slots: {obstacle}" if obstacle else "offering slots again"
            self._steps.todo.append(Log(text, is_warning=True))
            self._is_news(True)

    def _is_news(self, is_news: bool) -> None:
        """Send a Report at once if ``is_news``."""
        if is_news:
            self._steps.report = Urgency.NOW
