"""The agent's wing for the computer's sleep: the good-bye, locks that prevent sleep, and suspend after work.

Before a suspend or a shutdown, logind waits for us (login_manager.py). Attempts that others wait for are ended
(core/sleep_rule.py), then a last Report says good-bye. The master closes the link once that is on its disk. All of it
takes at most ``_WITHIN_S``: if the master does not answer by then, the computer sleeps anyway. The link rests until
the computer is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from loopline_shared.errors import LooplineError
from loopline_shared.protocol.power import Armed, GoodBye, SleepCause, SleepKind, WakeFacts
from loopline_worker.attempts.agent_wing import AgentWing
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.core.sleep_rule import ComputerSleeps, ComputerWakes, FollowOrders, SleepRule
from loopline_worker.host.boot_clock import boot_s
from loopline_worker.power import network_manager
from loopline_worker.power.clock_alarm import ClockAlarm
from loopline_worker.power.login_manager import CALLED_OFF_S, SleepWatch
from loopline_worker.power.sleep_locks import SleepLocks
from loopline_worker.power.suspend import suspend
from loopline_worker.power.wake_facts import with_setting
from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.task_group import TaskGroup

if TYPE_CHECKING:
    from loopline_shared.protocol.worker_link import Welcome
    from loopline_worker.core.instructions import WingInstruction

log = logging.getLogger(__name__)

_WITHIN_S, _END_WITHIN_S = 0.9, 0.5
_LOOK_EVERY_S = 0.01
_AFTER_WAKING_S = 30.0
"""Input this soon after a boot or a return is no sign of a person: some desktops count the return as input."""

Facts = Callable[[str, bool], WakeFacts | None]
"""Returns the facts by the computer's address in the master's network, and whether it may be suspended."""


class SleepWing(AgentWing):
    """Says good-bye before the computer sleeps."""

    machine_wing = SleepRule

    def __init__(
        self, task_group: TaskGroup, facts: Facts, *, knows_owner: bool, alarm: ClockAlarm | None = None
    ) -> None:
        """``knows_owner``: presence is watched, or the computer has no owner. Otherwise it is never suspended."""
        self._task_group, self._facts, self._knows_owner = task_group, facts, knows_owner
        self._watch = SleepWatch(self._on_sleep, self._on_return)
        self._locks = SleepLocks(task_group)
        self._alarm = alarm or ClockAlarm()
        self._armed = Armed.UNKNOWN  # by NetworkManager
        self._good_bye: GoodBye | None = None
        self._leaving: asyncio.Task[None] | None = None  # says good-bye
        self._requested: tuple[SleepCause, float] | None = None  # a suspend, and when this worker requested it
        self._sleep_after_s: float | None = None  # without a task; None: the grid has not woken this computer
        self._busy_at = 0.0
        self._awake_since = 0.0  # by ``boot_s``: the boot, or the last return

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
        self._task_group.start(self._ask_network_manager())

    def obey(self, instruction: WingInstruction) -> None:
        """Follow the master's orders."""
        if not isinstance(instruction, FollowOrders):
            return
        orders = instruction.orders
        if self._sleep_after_s is None:
            self._busy_at = boot_s()
        self._sleep_after_s = orders.sleep_after_s if self._knows_owner else None
        if orders.test_alarm_s is not None:
            self._test(orders.test_alarm_s)

    def on_sample(self) -> None:
        """Prevent sleep while it is wanted, or suspend the computer after its work."""
        self._locks.want(self.agent.sleep_locks)
        if self._sleep_after_s is not None:
            self._suspend_after(self._sleep_after_s)

    def close(self) -> None:
        """Let the computer sleep."""
        self._watch.release()
        self._locks.want(())

    def _test(self, alarm_s: float) -> None:
        """Suspend the computer to find out whether it can be woken, unless it is wanted or must not be woken."""
        facts = self._read_facts()
        if not self._knows_owner:
            obstacle = "its owner may be using it: presence is not watched"
        elif self.agent.is_wanted:
            obstacle = "a task runs, or its owner may be using it"
        elif facts is None:
            obstacle = "it has no network card that could wake it"
        else:
            obstacle = facts.obstacle if facts.is_allowed else "its owner does not allow that (allow_wake = false)"
        if obstacle:
            log.warning("this computer is not suspended for a test: %s", obstacle)
            return
        why = "the operator tests whether it can be woken"
        self._task_group.start(self._suspend(SleepCause.TEST, why, alarm_s))

    def _suspend_after(self, idle_s: float) -> None:
        """Suspend the computer when it has had no task for this long, unless its owner has come."""
        if self._has_owner_come():
            self._sleep_after_s = None
        elif self.agent.is_wanted:
            self._busy_at = boot_s()
        elif boot_s() - self._busy_at >= idle_s:
            self._sleep_after_s = None
            why = f"the grid woke it, and it has had no task for {idle_s:g} s"
            self._task_group.start(self._suspend(SleepCause.GRID, why))

    def _has_owner_come(self) -> bool:
        """True if there was an input since the computer woke. Unknown presence is none."""
        idle_s, awake_s = self.agent.idle_s, boot_s() - self._awake_since
        return self.agent.is_in_use and idle_s is not None and idle_s < awake_s - _AFTER_WAKING_S

    async def _suspend(self, cause: SleepCause, why: str, alarm_s: float | None = None) -> None:
        """Suspend this computer; its own clock wakes it after ``alarm_s`` at the latest."""
        log.info("suspending this computer: %s", why)
        self._requested = requested = cause, boot_s()
        self.agent.post(ComputerSleeps(is_off=False))  # nothing starts from now on
        try:
            if alarm_s is not None:
                self._alarm.set(alarm_s)
            await suspend()
            await asyncio.sleep(CALLED_OFF_S)
        except LooplineError as error:
            log.warning("%s (%s)", error.message, error.hint)
        if self._requested is requested and not self.is_awake:  # it was refused, or never announced
            self._requested = None
            self._alarm.clear()
            self.agent.post(ComputerWakes())

    def _cause(self) -> SleepCause:
        if self.agent.is_in_use or not self._knows_owner:
            return SleepCause.OWNER
        if self._requested and boot_s() < self._requested[1] + CALLED_OFF_S:
            return self._requested[0]
        return SleepCause.IDLE

    def _on_sleep(self, kind: SleepKind) -> None:
        if self._leaving:
            self._leaving.cancel()
        self._good_bye = None
        self._leaving = self._task_group.start(self._leave(kind))

    async def _leave(self, kind: SleepKind) -> None:
        log.info("this computer is about to %s", "be switched off" if kind is SleepKind.OFF else "be suspended")
        self.is_awake = True
        self.agent.pause_link()
        with suppress(TimeoutError):
            async with asyncio.timeout(_WITHIN_S):
                self.agent.post(ComputerSleeps(kind is SleepKind.OFF))
                await self._until_ended()
                self._good_bye = GoodBye(kind, self._cause(), self._read_facts())
                self.agent.speak()
                await _until(lambda: not self.agent.is_linked)
        self._watch.release()

    async def _ask_network_manager(self) -> None:
        facts = self._read_facts()
        with suppress(Exception):  # a library may raise anything about a broken peer
            self._armed = await run(network_manager.armed(facts.interface)) if facts else Armed.UNKNOWN

    def _read_facts(self) -> WakeFacts | None:
        try:
            facts = self._facts(self.agent.own_address, self._watch.can_suspend and self._knows_owner)
            return facts and with_setting(facts, self._armed)
        except OSError as error:  # no file descriptor left
            log.warning("the grid cannot wake this computer: its network cards cannot be read: %s", error)
            return None

    async def _until_ended(self) -> None:
        """Wait a moment for the ends of the attempts that are given back."""
        await asyncio.sleep(0)  # the agent takes its turn
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_WITHIN_S):
                await _until(lambda: not self.agent.is_ending)

    def _on_return(self) -> None:
        if self._leaving:
            self._leaving.cancel()
        self._leaving = self._good_bye = self._requested = None
        self._sleep_after_s = None  # if the grid woke this computer, the first Assign says so
        self._awake_since = boot_s()
        self._alarm.clear()
        self.is_awake = False
        self.agent.post(ComputerWakes())
        self.agent.resume_link()


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - for less than a second, before a sleep
        await asyncio.sleep(_LOOK_EVERY_S)
