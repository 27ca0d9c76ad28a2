"""The wing *power*: computers that sleep, and the attempts on them.

A worker says good-bye in its last Report before its computer sleeps. The link is then closed, which tells the worker
that the good-bye is on disk. If the computer is suspended, its attempts are frozen, so that replicas may start, and
are lost after ``sleep_keep_s``. Attempts that would hold up other work are lost at once: attempts that have not
begun, fenced attempts, members of gangs, and attempts of a job that holds others. If the computer is switched off,
all its attempts are lost at once.

A sleeper is awake again when it joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from loopline_master.core.events import MasterStarted, MasterStoodStill, WakeRequested, WorkerJoined
from loopline_master.core.kernel import lifecycle, transitions
from loopline_master.core.kernel.door.mechanism import Handler, Tell
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.effects import Reply
from loopline_master.core.kernel.entities import LIVE, OCCUPYING, Attempt, Job, Worker
from loopline_master.core.kernel.sessions import leases
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.wings.power.sleeper import Sleeper, Sleepers
from loopline_master.core.wings.power.wakes import Wakes, came_by_alarm
from loopline_shared.model import AttemptState, Load
from loopline_shared.protocol.power import MAX_TARGETS, GoodBye, PowerOrders, SleepKind
from loopline_shared.protocol.worker_link import Assign, Report

_ASLEEP = "its computer went to sleep"
_AFTER_WAKING_S = 30.0
"""Input this soon after waking is no sign of a person: some desktops count the return as input."""
_BEGUN = (AttemptState.RUNNING, AttemptState.FROZEN, AttemptState.DELIVERING)


class Power(Wing):
    """Awake as soon as a worker has said good-bye, or is tested."""

    reported = ("good_bye",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._sleepers = Sleepers()
        self._leaving: list[str] = []  # said good-bye in this step
        self._wakes = Wakes(state, self._sleepers)
        state.keep(self._sleepers)

    @property
    def is_awake(self) -> bool:
        return bool(self._sleepers.of) or self._wakes.is_testing

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        return {Sleeper: self._note}

    def restore(self, rows: Rows) -> None:
        for sleeper in rows.of(Sleeper):
            self._sleepers.note(sleeper)

    def handlers(self) -> Mapping[type, Handler]:
        return {
            WorkerJoined: self._return,
            WakeRequested: self._request_wake,
            MasterStarted: self._renew_wakes,
            MasterStoodStill: self._renew_wakes,
        }

    def parts(self) -> Mapping[str, Callable[[Worker, Any], None]]:
        return {"good_bye": self._say_good_bye}

    def _note(self, sleeper: Sleeper) -> None:
        self._sleepers.note(sleeper)
        self.state.effects.note(sleeper.worker, sleeper)
        self.state.wings.arrange()

    def brings_news(self, worker: Worker, report: Report) -> bool:
        return report.good_bye is not None

    # Sleep and return.

    def _say_good_bye(self, worker: Worker, told: GoodBye) -> None:
        sleeper = self._sleepers.of.get(worker.name) or Sleeper(worker.name, None, told.kind, told.by, told.wake)
        sleeper.asleep_since = self.state.now
        sleeper.kind, sleeper.by, sleeper.wake = told.kind, told.by, told.wake
        sleeper.waking_since = sleeper.first_wake_at = sleeper.woken_at = None
        self.state.put(sleeper)
        self._leaving.append(worker.name)

    def _return(self, event: WorkerJoined, tell: Tell) -> None:
        sleeper, worker = self._sleepers.asleep(event.worker), self.state.workers.get(event.worker)
        if sleeper is None or worker is None or worker.session != event.session:  # it may have been declined
            return
        if event.worker in self._leaving:
            self._leaving.remove(event.worker)
        if came_by_alarm(sleeper, self.state.now):
            sleeper.failed_wakes += sleeper.waking_since is not None
        elif sleeper.is_woken_if_awake(self.state.now):
            sleeper.note_success(self.state.now)
        sleeper.asleep_since = sleeper.waking_since = None
        self.state.put(sleeper)

    def _renew_wakes(self, event: MasterStarted | MasterStoodStill, tell: Tell) -> None:
        """Give the computers that are being woken more time: the master was away, and none could connect."""
        for sleeper in self._sleepers.waking:
            sleeper.waking_since = self.state.now
            self.state.put(sleeper)

    def load_changes(self, worker: Worker, before: Load | None) -> None:
        """Note that the owner has come to a computer that the grid woke: the grid leaves it awake."""
        sleeper = self._sleepers.of.get(worker.name)
        if sleeper and _was_used_since(sleeper.woken_at, worker.load, self.state.now):
            sleeper.woken_at, sleeper.unused_wakes = None, 0
            self.state.put(sleeper)

    def due_at(self) -> float | None:
        return self.state.now if self._leaving else self._wakes.due_at()

    def expire(self) -> None:
        """End the sessions of the workers that said good-bye in this step, and note wakes that have failed."""
        self._wakes.expire()
        leaving, self._leaving = self._leaving, []
        for name in leaving:
            self._end_session(self.state.workers[name])

    def _end_session(self, worker: Worker) -> None:
        state, is_suspended = self.state, self._sleepers.of[worker.name].kind is SleepKind.SUSPEND
        for attempt in list(state.index.attempts.of_worker.get(worker.name, {}).values()):
            if attempt.state not in OCCUPYING:
                continue
            if not (is_suspended and self._may_sleep(attempt)):
                lifecycle.lose(state, attempt, _ASLEEP, for_good=state.jobs[attempt.job].nodes > 1)
            elif attempt.state is AttemptState.RUNNING:
                attempt.freeze(state.now)
                attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, AttemptState.FROZEN)
                state.put(attempt)
        for forget in state.wings.worker_left:
            forget(worker.name)
        if worker.session is not None:
            state.effects.closes.append((worker.name, worker.session))
        leases.disconnect(state, worker)
        if is_suspended:
            worker.kept_until = state.now + state.settings.sleep_keep_s

    def _may_sleep(self, attempt: Attempt) -> bool:
        """True if an attempt may sleep with its computer: it has begun, and holds up no other work."""
        job = self.state.jobs[attempt.job]
        has_begun = attempt.state in _BEGUN and attempt.term_s is None and job.nodes == 1
        return has_begun and not self._holds_others(job)

    def _holds_others(self, job: Job) -> bool:
        """True if another job waits for this one. Costs O(held jobs)."""
        held = map(self.state.jobs.__getitem__, self.state.index.blockers if job.has_claim else ())
        return any(one.arrival > job.arrival and one.is_no_smaller(job) and one.is_ordered_after(job) for one in held)

    def finish_step(self) -> None:
        """Forget sleepers that are gone; their rows are deleted with those of their workers. Wake others."""
        for name in self.state.effects.gone:
            if self._sleepers.forget(name):
                self.state.effects.rows(Sleeper).pop(name, None)
                self.state.wings.arrange()
        for attempt in self.state.effects.attempts.values():
            sleeper = self._sleepers.of.get(attempt.worker)
            if sleeper and sleeper.unused_wakes and not sleeper.is_asleep and attempt.state in LIVE:
                sleeper.unused_wakes = 0
                self.state.put(sleeper)
        self._wakes.plan()
        self._wakes.sending.update()

    def _request_wake(self, event: WakeRequested, tell: Tell) -> Reply:
        reply = self._wakes.request(event, tell)
        self.state.wings.arrange()
        return reply

    def addressees(self) -> Iterable[str]:
        return self._wakes.senders()

    def assign(self, worker: Worker, assign: Assign) -> None:
        """Have it wake others, or be suspended."""
        targets = tuple(self._wakes.sending.targets_of(worker.name)[:MAX_TARGETS])
        alarm_s, after_s = self._wakes.test_alarm_s(worker), None
        sleeper = self._sleepers.of.get(worker.name)
        if sleeper and sleeper.woken_at is not None:
            after_s = self.state.settings.sleep_after_s + self._wakes.gathers_for_s(worker)
        if targets or (alarm_s, after_s) != (None, None):
            assign.power = PowerOrders(targets, alarm_s, after_s)
        if alarm_s is not None:
            self.state.wings.arrange()  # the test may have been the only reason to be awake

    def coming_tasks(self) -> Callable[[Job, int], int]:
        """Return a function that counts the tasks of a job which computers being woken will begin.

        It takes the job and a number of its tasks. Call it in the order of the jobs' arrival.
        """
        return self._wakes.coming_tasks()

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if a computer is asleep and its worker has a session."""
        if isinstance(of, Worker):
            assert not (of.session is not None and self._sleepers.asleep(of.name)), f"{of.name} is asleep, connected"
        for name in self._sleepers.of if of is None else ():
            assert name in self.state.workers, f"there is no worker {name}, and it may be asleep"


def _was_used_since(woken_at: float | None, load: Load | None, now: float) -> bool:
    """True if the grid woke a computer, and there was an input since. While presence is unknown, there is none."""
    if woken_at is None or load is None or not load.in_use or load.idle_s is None:
        return False
    return load.idle_s + _AFTER_WAKING_S < now - woken_at
