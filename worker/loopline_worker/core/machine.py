"""The worker as a pure machine: ``Machine.step(events, now) -> Instructions``. No I/O, no clock, no randomness.

The agent, the simulator and the tests tell it what has happened (events.py), in order; a step applies that, decides
what follows, and says what is to be done (instructions.py). Whoever drives it writes the step's journal entry first,
then obeys: *commit, then speak*. If the disk does not take the entry, WriteFailed says so, and the entry's results
stay here until they are on disk. The machine alone knows the state of an attempt; processes, files and frames are
with the agent, and are named by the attempt's id.

*States* (transitions.py). An attempt is WAITING from the Assign that brings it until it has its slots, and RUNNING in
them. It may be FROZEN for the owner's sake. It is ENDING once it was told to end, or once its processes are gone and
its result is on the way. With its result its slots are free. The result is UNSENT as soon as the journal has it, or
DELIVERING before that, while the disk or the master's store lacks something. It is SENT with a Report, and forgotten
when an Assign acknowledges that Report; a new session makes it UNSENT again. Whatever a master sends has an answer
here, "ignored" included.

*Who waits for whom.* What waits begins in the order in which it came, the moment that its slots are free: no frame is
needed between two tasks. What fits may pass what is too wide for the free slots.

*The retract rule.* Where tasks are short, the first of those that wait are PREFETCHED: a supervisor has them, and
begins each in the slot of one that ended, so that never more run than there are slots (Followed). Nothing that came
later begins before them: if a slot is free all the same, they are retracted first. Until the outcome of a retract is
known, nothing begins; the outcome is an event. What was Returned waits again, before all others; what is still
prefetched when all was Retracted has begun, as will be told.

*The doubt rule.* After a restart, with a new session, or when the link was silent for a lease, the master may have
given elsewhere what has not begun. None of it begins until an Assign answers a Report of this session: the master has
then seen what waits here, and would have cancelled it.

*Lives* (kept_results.py). Each restore of the master's database begins another life of it. What an earlier one gave
ends and is forgotten as soon as a Welcome names another: no Report says anything of it.

*Wings* (machine_wing.py). An optional feature, such as gangs (gang_members.py), is a wing: the machine is given its
class, and knows only the hooks. An attempt that a wing starts is PREPARING in its slots, then PREPARED, and RUNNING
when the wing starts it.

*The owner rule* (owner.py). Each reading of the idle detector leads to a decision: so many slots' worth of tasks
may run. The oldest attempts keep running, the others are frozen, and preempted after the grace time. While anything
stands frozen, memory is short, no slot is allowed, or this computer has an obstacle, nothing begins, and what waits
is preempted: it would wait here for long.
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
    """Machine of a worker: its attempts, its owner, and what its master knows."""

    def __init__(
        self,
        slots: int = MAX_ID,
        preferences: OwnerPreferences = _DEDICATED,
        grace_s: float = 0.0,
        wings: Sequence[type[MachineWing]] = (),
    ) -> None:
        """``slots``: the most that may ever be used; ``grace_s``: an attempt that is frozen longer is preempted."""
        self.attempts = Attempts()
        self._owner = Owner(self.attempts, preferences, grace_s, slots)
        self._admission = Admission(self.attempts)
        self._results = KeptResults(self.attempts)
        self._obstacle = ""  # why no slots are offered, whatever the owner allows
        self._trouble = ""  # what this computer could not do, until it can again
        self._is_stopping = False
        self._leaving: AttemptId | None = None  # for want of disk space; it may still fill the disk
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
            on.OwnerObserved: self._owner_looked,
            on.FreezeCompleted: self._stilled,
            on.DiskObserved: self._disk_looked,
            on.Stopping: self._stopping,
        }
        self._wings = tuple(wing(self) for wing in wings)
        for wing in self._wings:
            for kind, handle in wing.handlers().items():
                self._handlers[kind] = partial(self._for_wing, handle)

    def step(self, events: Iterable[on.Event], now: float, room: int = 0) -> Instructions:
        """Apply what has happened. ``room``: so many attempts could be prefetched beside those that are."""
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
        if self.attempts.by_wings and not self._admission.is_retracting:
            for wing in self._wings:
                wing.finish_step(self.decision.slots, self.pause_reason, now, steps)
        self._admission.has_retracted = False
        if self.attempts.unsent:
            steps.report = Urgency.NOW
        elif self.owes_report and steps.report is Urgency.NOT:
            steps.report = Urgency.SOON
        steps.idle_slots, steps.trouble = self._owner.decision.slots - self.attempts.taken, self._trouble
        return steps

    # What it says of itself.

    @property
    def life(self) -> str:
        """Return the life of the master's database to which all that a Report names belongs; empty: not known."""
        return self._results.life

    def inventory(self) -> AttemptInventory:
        """Return what the next Report says of attempts. Tell with Reported that it left."""
        return inventory_of(self.attempts)

    def report(self, draft: DraftReport) -> None:
        """Have the wings add their parts to the next Report."""
        for wing in self._wings:
            wing.report(draft)

    @property
    def has_results(self) -> bool:
        """True if a result waits to be sent: a Report is due at once."""
        return bool(self.attempts.unsent)

    @property
    def has_news(self) -> bool:
        """True if the master does not know all yet."""
        return self.owes_report or self.has_results

    @property
    def is_busy(self) -> bool:
        """True if something waits here for a slot."""
        return bool(self.attempts.waiting or self.attempts.prefetched)

    @property
    def is_idle(self) -> bool:
        """True if nothing is in hand, and the master has every result on its disk."""
        return not len(self.attempts)

    @property
    def is_in_use(self) -> bool:
        """True if somebody uses the computer or that is unknown; False if the owner policy does not ask."""
        return self._owner.is_there

    @property
    def freezing(self) -> int:
        """Return the number of attempts that were told to freeze and may still move."""
        return self._owner.freezing

    @property
    def decision(self) -> Decision:
        """Return what the owner policy allows now."""
        return self._owner.decision

    @property
    def slots_offered(self) -> int:
        """Return the number of slots that the master may use."""
        return 0 if self._obstacle else self._owner.slots_allowed

    @property
    def pause_reason(self) -> str:
        """Return why nothing starts and what waits would wait for long; empty if attempts may start."""
        return self._obstacle or self._owner.pause_reason

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
        self.owes_report = False  # the first Report of a session tells all

    def _connected(self, event: on.Connected, now: float) -> None:
        self._results.send_again()
        self._doubt()

    def _welcomed(self, event: on.Welcomed, now: float) -> None:
        """End and forget what another life of the master's database gave."""
        if self._results.begin_life(event.life, self._steps):
            self._cancel(list(self.attempts.disowned))

    def _link_silent(self, event: on.LinkSilent, now: float) -> None:
        self._doubt()

    def _doubt(self) -> None:
        self._admission.retract(self._steps)
        self.attempts.doubt()

    def _assigned(self, event: on.Assigned, now: float) -> None:
        """Take over an Assign. Runs of attempts that are known, and cancels of those not in hand, are ignored."""
        assign = event.assign
        self._results.acknowledged(assign.seen, self._steps)
        unwanted = dict.fromkeys(assign.cancel)
        if unwanted:
            self._cancel(unwanted, assign.gently)
        if assign.run:
            self._steps.journal.came.append((assign, event.frame))
            for run in assign.run:
                if run.attempt not in unwanted:
                    self._queue(run)
        for wing in self._wings:
            wing.assign(assign, now, self._steps)
        if assign.seen > 0:
            self.attempts.doubted.clear()

    def _queue(self, run: Run) -> None:
        if run.attempt not in self.attempts:
            by_wing = any(wing.starts(run) for wing in self._wings)
            self.attempts.add(AttemptRecord(run.attempt, State.WAITING, run, by_wing=by_wing))
            self.owes_report = True

    def _cancel(self, unwanted: Iterable[AttemptId], gently: Sequence[AttemptId] = ()) -> None:
        """Drop what waits and end what has begun. What is prefetched is retracted first: it need not be ended."""
        if any(attempt in self.attempts.prefetched for attempt in unwanted):
            self._admission.retract(self._steps)
        for attempt_id in unwanted:
            attempt = self.attempts.get(attempt_id)
            if attempt is None or attempt.state in (State.UNSENT, State.SENT):
                self.owes_report = True  # which says that it is not in hand
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
        self.must_review |= was_ending  # its slot may have been meant for nobody

    def _returned(self, event: on.Returned, now: float) -> None:
        """Have these wait before all others, as they came. What was cancelled meanwhile ends here."""
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
        """Return as given back what ended by the signal that stops this worker: it was for all in an allocation."""
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

    def _owner_looked(self, event: on.OwnerObserved, now: float) -> None:
        self._is_news(self._owner.looked(event, now, self._steps.todo))

    def _stilled(self, event: on.FreezeCompleted, now: float) -> None:
        self._is_news(self._owner.stilled(event.attempt, now, self._steps.todo))

    def _disk_looked(self, event: on.DiskObserved, now: float) -> None:
        if event.is_writable:
            self._trouble = ""
        self._obstruct(self._trouble or event.obstacle)
        for attempt in self.attempts.frozen:  # a process that was just being made when the others stopped goes on
            self._steps.todo.append(Freeze(attempt))
        if event.shortage and self._leaving is None:
            self._relieve_disk(event.shortage)

    def _relieve_disk(self, shortage: str) -> None:
        """Preempt one attempt, the youngest; the next when what it left is gone."""
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
        """Have the master hear of it at once."""
        if is_news:
            self._steps.report = Urgency.NOW
