"""The agent's wing for the computer's sleep: the good-bye, locks that prevent sleep, and suspend after work.

Before a suspend or a shutdown, logind waits for us (login_manager.py). Attempts that others wait for are ended
(core/sleep_rule.py), then a last Report says good-bye. The master closes the link once that is on its disk. All of it
takes at most ``_WITHIN_S``: if the master does not answer by then, the computer sleeps anyway. The link rests until
the computer is back.

While a task runs and the owner is away, the wing holds logind's lock *idle* and the lock of our own session. A login
screen suspends the computer by itself and ignores these, so there the wing holds the lock *sleep* as well. It never
takes a lock that prevents a shutdown, or that changes the power button or the lid.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from loopline_shared.errors import LooplineError
from loopline_shared.protocol.power import GoodBye, SleepCause, SleepKind, WakeFacts
from loopline_worker.attempts.agent_wing import AgentWing
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.core.sleep_rule import ComputerSleeps, FollowOrders, SleepRule
from loopline_worker.host.boot_clock import boot_s
from loopline_worker.power import login_manager
from loopline_worker.power.login_manager import SleepWatch
from loopline_worker.power.suspend import set_alarm, suspend
from loopline_worker.power.wake_facts import until_hours_s
from loopline_worker.presence.session_lock import lock_session
from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.task_group import TaskGroup

if TYPE_CHECKING:
    from loopline_shared.protocol.worker_link import Welcome
    from loopline_worker.core.instructions import WingInstruction
    from loopline_worker.presence.bus import Bus

log = logging.getLogger(__name__)

_WITHIN_S, _END_WITHIN_S = 0.9, 0.5
_LOOK_EVERY_S = 0.01
_CALLED_OFF_S = 30.0
"""An announced sleep counts as called off after this awake time, even if logind is silent."""


class SleepWing(AgentWing):
    """Says good-bye before the computer sleeps."""

    machine_wing = SleepRule

    def __init__(self, task_group: TaskGroup, facts: Callable[[bool], WakeFacts | None]) -> None:
        self._task_group, self._facts = task_group, facts
        self._watch = SleepWatch(self._on_sleep, self._on_return)
        self._good_bye: GoodBye | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cause: SleepCause | None = None  # of a suspend that this worker has requested
        self._wanted: tuple[str, ...] = ()  # locks that prevent sleep
        self._locks: list[int] = []  # those of them that are held
        self._session: Bus | None = None  # whose lock is held
        self._sleep_after_s: float | None = None  # without a task; None: the grid has not woken this computer
        self._busy_at = 0.0
        self._expects_work = False

    @property
    def is_woken(self) -> bool:
        """True if the computer is on because the grid woke it, and its owner has not come."""
        return self._sleep_after_s is not None

    async def watch(self) -> None:
        """Wait for the computer's sleep."""
        await run(self._watch.watch())

    def report(self, draft: DraftReport) -> None:
        """Offer no slots before a sleep, and say good-bye."""
        draft.load = replace(draft.load, slots=0, withheld="this computer is about to sleep")
        draft.good_bye = self._good_bye

    def connected(self, welcome: Welcome) -> None:
        """Forget that the grid woke this computer: the first Assign says it again."""
        self._sleep_after_s = None

    def obey(self, instruction: WingInstruction) -> None:
        """Follow the master's orders."""
        if isinstance(instruction, FollowOrders):
            if self._sleep_after_s is None:
                self._busy_at = boot_s()
            self._sleep_after_s = instruction.orders.sleep_after_s
            if instruction.orders.expects_work is not None:
                self._expects_work = instruction.orders.expects_work
            if instruction.orders.test_alarm_s is not None:
                why = "the operator tests whether it can be woken"
                self._task_group.start(self._suspend(SleepCause.TEST, why, instruction.orders.test_alarm_s))

    def on_sample(self) -> None:
        """Prevent sleep while it is wanted, or suspend the computer after its work."""
        if (wanted := self.agent.sleep_locks) != self._wanted:
            self._wanted = wanted
            self._release()
            if wanted:
                self._task_group.start(self._acquire(wanted))
        if self._sleep_after_s is not None:
            self._suspend_after(self._sleep_after_s)

    def close(self) -> None:
        """Let the computer sleep."""
        self._watch.release()
        self._release()

    def _release(self) -> None:
        if self._session:
            self._session.close()
            self._session = None
        while self._locks:
            os.close(self._locks.pop())

    async def _acquire(self, wanted: tuple[str, ...]) -> None:
        for what in wanted:
            try:
                lock = await run(login_manager.inhibit(what, "a task runs, and nobody uses this computer"))
            except Exception as error:  # a library may raise anything
                log.info("cannot take logind's lock %s while a task runs: %s", what, error or type(error).__name__)
                continue
            if self._wanted != wanted:
                os.close(lock)
                return
            self._locks.append(lock)
        with suppress(Exception):  # most workers have no session
            self._session = await run(lock_session())
        if self._wanted != wanted:
            self._release()

    def _suspend_after(self, idle_s: float) -> None:
        """Suspend the computer when it has had no task for this long, unless its owner has come."""
        if self.agent.is_in_use:
            self._sleep_after_s = None
        elif self.agent.is_wanted:
            self._busy_at = boot_s()
        elif boot_s() - self._busy_at >= idle_s:
            self._sleep_after_s = None
            why = f"the grid woke it, and it has had no task for {idle_s:g} s"
            self._task_group.start(self._suspend(SleepCause.GRID, why))

    async def _suspend(self, cause: SleepCause, why: str, alarm_s: float | None = None) -> None:
        """Suspend this computer; its own clock wakes it after ``alarm_s`` at the latest."""
        log.info("suspending this computer: %s", why)
        self._cause = cause
        try:
            await suspend(alarm_s)
        except LooplineError as error:
            self._cause = None
            log.warning("%s (%s)", error.message, error.hint)

    def _on_sleep(self, kind: SleepKind) -> None:
        self._task_group.start(self._say_good_bye(kind))

    async def _say_good_bye(self, kind: SleepKind) -> None:
        log.info("this computer is about to %s", "be switched off" if kind is SleepKind.OFF else "be suspended")
        self.is_awake = True
        self.agent.pause_link()
        self._timer = asyncio.get_running_loop().call_later(_CALLED_OFF_S, self._task_group.do, self._on_return)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WITHIN_S):
                    self.agent.post(ComputerSleeps(kind is SleepKind.OFF))
                    await self._until_ended()
                    cause = SleepCause.OWNER if self.agent.is_in_use else SleepCause.IDLE
                    facts = self._facts(self._watch.can_suspend)
                    if facts and self._cause is not SleepCause.TEST:
                        self._set_alarm(facts)
                    self._good_bye = GoodBye(kind, self._cause or cause, facts)
                    self.agent.speak()
                    await _until(lambda: not self.agent.is_linked)
        finally:
            self._watch.release()

    def _set_alarm(self, facts: WakeFacts) -> None:
        """Have the clock wake this computer at the start of its owner's hours, if work is expected then."""
        wait_s = until_hours_s(facts, time.time())
        if self._expects_work and facts.is_allowed and wait_s is not None:
            with suppress(LooplineError):  # not permitted: then it can only be woken over the network
                set_alarm(wait_s)

    async def _until_ended(self) -> None:
        """Wait a moment for the ends of the attempts that are given back."""
        await asyncio.sleep(0)  # the agent takes its turn
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_WITHIN_S):
                await _until(lambda: not self.agent.is_ending)

    def _on_return(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._good_bye = self._cause = None
        self.is_awake = False
        self.agent.resume_link()


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - for less than a second, before a sleep
        await asyncio.sleep(_LOOK_EVERY_S)
