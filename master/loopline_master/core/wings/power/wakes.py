"""Wakes: sleeping computers are woken for waiting work.

The waiting work is checked at most every ``_PLAN_EVERY_S``, after a step has placed the tasks that awake workers can
start. wake_plan.py decides which computers to wake for the rest. Each Assign to one awake worker of their subnet
names them, so that lost frames and packets are repeated. If there is no such worker, or a wake has failed before, the
master sends packets, too (``WakeOrder``). A computer that has not come within ``GIVE_UP_S`` has failed. After
``MAX_FAILED_WAKES`` in a row it is only woken on request. The same holds for wakes that no task has followed; after
each of them the computer is left asleep for a while (wake_rules.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from loopline_master.core.events import WakeRequested
from loopline_master.core.kernel.door.mechanism import Tell
from loopline_master.core.kernel.effects import Declined, Done, Reply
from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.index.requirement_class import nodes_of
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.power.senders import Senders
from loopline_master.core.wings.power.sleeper import Sleeper, Sleepers
from loopline_master.core.wings.power.waiting_jobs import WaitingJobs
from loopline_master.core.wings.power.wake_plan import ComputerSlots, computers_to_wake
from loopline_master.core.wings.power.wake_rules import MAX_FAILED_WAKES as MAX_FAILED_WAKES
from loopline_master.core.wings.power.wake_rules import lasting_reason, passing_reason
from loopline_shared.protocol.power import SleepCause

GIVE_UP_S = 300.0
_OFFERS_WITHIN_S = 300.0
"""A computer that has been woken is expected to offer slots within this time."""
_TEST_WAKE_S, TEST_ALARM_S = 15.0, 240.0
"""Seconds from a suspend for a test until magic packets are sent, and until the computer's own alarm wakes it."""
_ALARM_MARGIN_S = 15.0
_PLAN_EVERY_S = 2.0
_MOST_JOBS = 100
"""Number of jobs whose waiting tasks are considered at a time, in the order of arrival."""
_LATER_S = 60.0
"""Pause before waiting work is checked again, for computers that may not be woken yet."""


@dataclass(frozen=True, slots=True)
class WakeOrder:
    """The master must wake this worker's computer itself."""

    worker: str
    hardware_address: str
    subnet: str  # empty: unknown
    has_failed: bool  # an earlier wake


class Wakes:
    """The part of the wing *power* that wakes computers."""

    def __init__(self, state: State, sleepers: Sleepers) -> None:
        self._state, self._sleepers, self._waiting = state, sleepers, WaitingJobs(state)
        self.sending = Senders(state, sleepers)
        self._begun: list[str] = []  # wakes that began in this step
        self._tested: set[str] = set()  # tests that begin with this step's Assigns

    @property
    def is_testing(self) -> bool:
        """True while a computer must be ordered to suspend itself for a test."""
        return bool(self._tested)

    def due_at(self) -> float | None:
        grid, times = self._state.grid, [self._ends_at(one) for one in self._sleepers.waking]
        times += [one.asleep_since + _TEST_WAKE_S for one in self._sleepers.tested if one.asleep_since is not None]
        if not self._sleepers.are_all_awake and grid.wakes_due_at is not None:
            times.append(grid.wakes_due_at)
        return min(times, default=None)

    def expire(self) -> None:
        """Count the wakes that have failed, and wake computers that are tested."""
        for sleeper in self._sleepers.tested:
            if (sleeper.asleep_since or 0.0) + _TEST_WAKE_S <= self._state.now:
                self._begin(sleeper)
        for sleeper in self._sleepers.waking:
            if self._ends_at(sleeper) <= self._state.now:
                sleeper.waking_since, sleeper.failed_wakes = None, sleeper.failed_wakes + 1
                self._state.put(sleeper)

    def _ends_at(self, sleeper: Sleeper) -> float:
        return (sleeper.waking_since or 0.0) + GIVE_UP_S

    def plan(self) -> None:
        """Wake computers for the work that waits, unless that was decided a moment ago."""
        grid = self._state.grid
        if self._sleepers.are_all_awake:
            return
        before = grid.wakes_planned_at, grid.wakes_due_at
        pause_s: float | None = _PLAN_EVERY_S
        if grid.now >= grid.wakes_planned_at + _PLAN_EVERY_S:
            grid.wakes_planned_at, pause_s = grid.now, self._plan()
        grid.wakes_due_at = None if pause_s is None else grid.wakes_planned_at + pause_s
        if before != (grid.wakes_planned_at, grid.wakes_due_at):
            sleeper = self._sleepers.all_asleep[0]
            self._state.effects.note(sleeper.worker, sleeper)  # a step without effects is not in the log

    def _plan(self) -> float | None:
        """Wake computers; return the pause before the next plan, in seconds; None: nothing waits for a sleeper."""
        state = self._state
        asleep = [one for one in self._sleepers.all_asleep if one.waking_since is None]
        asleep = [one for one in asleep if not lasting_reason(state, one)]
        allowed = self._allowed(asleep)
        candidates = [one for one in asleep if one.wake and allowed[one.wake.subnet] > 0]
        candidates = [one for one in candidates if not passing_reason(state, one)]
        works = self._waiting.works([*(candidates or asleep), *self._sleepers.waking]) if asleep else ()
        waiting = list(islice(works, _MOST_JOBS))
        if not waiting or not candidates:
            return _LATER_S if waiting else None
        woken = computers_to_wake(
            waiting,
            [self._waiting.awake(worker) for worker in state.index.requirements.available.values()],
            self._coming(),
            [self._waiting.computer(one, one.wake_s) for one in candidates],
            allowed,
        )
        for name in woken:
            sleeper = self._sleepers.of[name]
            sleeper.unused_wakes += sleeper.first_wake_at is None  # once for each sleep, not for each try
            self._begin(sleeper)
        return _PLAN_EVERY_S

    def _coming(self) -> list[ComputerSlots]:
        """Return the computers that are being woken, and woken computers that offer no slots yet.

        Computers that an operator wakes while they are drained or in quarantine are left out: they get no task.
        """
        now, waiting = self._state.now, self._waiting
        usable = [self._sleepers.of[name] for name in sorted(self._sleepers.of) if self._may_get_tasks(name)]
        coming = [waiting.computer(one, max(0.0, one.wake_s - now + one.waking_since))
                  for one in usable if one.waking_since is not None]  # fmt: skip
        for one in usable:
            worker = self._state.workers[one.worker]
            if one.woken_at is not None and now < one.woken_at + _OFFERS_WITHIN_S and not worker.offered:
                coming += [waiting.computer(one, 0.0)] if worker.session is not None else []
        return coming

    def _may_get_tasks(self, name: str) -> bool:
        worker = self._state.workers[name]
        return not worker.draining and worker.quarantined_until is None

    def coming_tasks(self) -> Callable[[Job, int], int]:
        """Return ``Power.coming_tasks``."""
        return self._waiting.coming_tasks(self._coming())

    # Candidates.

    def _allowed(self, candidates: Iterable[Sleeper]) -> dict[str, int]:
        """Return how many computers of each subnet may be woken now."""
        recent = Counter(
            one.wake.subnet
            for one in self._sleepers.of.values()
            if one.wake and one.last_wake_at is not None and one.last_wake_at > self._state.now - 60.0
        )
        most = self._state.settings.wake_at_once
        return {one.wake.subnet: most - recent[one.wake.subnet] for one in candidates if one.wake}

    # Wakes.

    def request(self, event: WakeRequested, tell: Tell) -> Reply:
        """Wake a computer, or test whether it can be woken, because an operator asks for it."""
        if event.worker not in self._state.workers:
            return Declined(
                404, "no_such_worker", f"there is no worker {event.worker}", "`loopline workers` lists them"
            )
        if event.is_test:
            return self._test(event.worker, tell)
        worker, sleeper = event.worker, self._sleepers.asleep(event.worker)
        if sleeper is None:
            return Declined(409, "not_asleep", f"{worker} is not asleep", "`loopline workers` shows which are")
        if reason := sleeper.wake_blocker:
            return Declined(409, "not_wakeable", f"{worker} is not woken: {reason}", "start it by hand")
        if sleeper.waking_since is None:
            sleeper.unused_wakes = 0
            self._begin(sleeper)
        return Done()

    def _test(self, name: str, tell: Tell) -> Reply:
        """Have an idle computer suspended, to be woken after ``_TEST_WAKE_S``."""
        worker = self._state.workers[name]
        if worker.session is None or not worker.reported:
            return Declined(409, "not_connected", f"{name} is not connected", "`loopline workers` shows who is")
        if worker.load and worker.load.in_use:
            return Declined(409, "in_use", f"somebody may be using {name}", "try again when nobody does")
        if self._state.index.attempts.of_worker.get(name):
            return Declined(409, "has_tasks", f"tasks run on {name}", f"`loopline drain --wait {name}` first")
        if (sleeper := self._sleepers.of.get(name)) and (reason := sleeper.wake_blocker):
            hint = "that was so when it last slept: if it has changed, suspend it by hand once"
            return Declined(409, "not_wakeable", f"{name} is not woken: {reason}", hint)
        self._tested.add(name)
        tell(name)
        return Done()

    def gathers_for_s(self, worker: Worker) -> float:
        """Return the seconds that it may take to wake others for a gang that this worker suits; 0: none waits."""
        index, settings = self._state.index, self._state.settings
        if not index.parallel:
            return 0.0
        able = index.requirements.able.items()
        nodes = max((nodes_of(key) for key, names in able if worker.name in names), default=1)
        return 60.0 * (min(nodes, len(self._sleepers.of)) // max(1, settings.wake_at_once)) if nodes > 1 else 0.0

    def test_alarm_s(self, worker: Worker) -> float | None:
        """Return when the computer's own alarm wakes it, in seconds, if this worker is tested now; None otherwise."""
        if worker.name not in self._tested:
            return None
        self._tested.remove(worker.name)
        return TEST_ALARM_S

    def _begin(self, sleeper: Sleeper) -> None:
        sleeper.waking_since = sleeper.last_wake_at = self._state.now
        if sleeper.first_wake_at is None:
            sleeper.first_wake_at = self._state.now
        self._state.put(sleeper)
        self._begun.append(sleeper.worker)

    def senders(self) -> set[str]:
        """Return the awake workers that must send packets for the wakes that began in this step."""
        senders = set[str]()
        for name in self._begun:
            sleeper = self._sleepers.of[name]
            if sleeper.wake is None:
                continue
            sender = self.sending.sender_for(sleeper)
            if sender:
                senders.add(sender)
            if not sender or sleeper.failed_wakes:
                notice = WakeOrder(name, sleeper.wake.hardware_address, sleeper.wake.subnet, sleeper.failed_wakes > 0)
                self._state.effects.tell(notice)
        self._begun.clear()
        return senders


def came_by_alarm(sleeper: Sleeper, now: float) -> bool:
    """True if a tested computer that is awake again was probably woken by its own alarm."""
    is_tested = sleeper.by is SleepCause.TEST and sleeper.last_wake_at == sleeper.first_wake_at
    return is_tested and now >= (sleeper.asleep_since or 0.0) + TEST_ALARM_S - _ALARM_MARGIN_S
