"""The agent's wing for the computer's sleep: the good-bye, inhibitors, and suspend after work.

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

from loopline_shared.protocol.power import GoodBye, SleepCause, SleepKind, WakeFacts
from loopline_worker.attempts.agent_wing import AgentWing
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.core.sleep_rule import ComputerSleeps, SleepRule
from loopline_worker.power.login_manager import SleepWatch
from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.task_group import TaskGroup

log = logging.getLogger(__name__)

_WITHIN_S, _END_WITHIN_S = 0.9, 0.5
_LOOK_EVERY_S = 0.01
_CALLED_OFF_S = 30.0
"""An announced sleep counts as called off after this awake time, even if logind is silent."""


class SleepWing(AgentWing):
    """Says good-bye before the computer sleeps."""

    machine_wing = SleepRule

    def __init__(self, task_group: TaskGroup, facts: Callable[[], WakeFacts | None]) -> None:
        self._task_group, self._facts = task_group, facts
        self._watch = SleepWatch(self._on_sleep, self._on_return)
        self._good_bye: GoodBye | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cause: SleepCause | None = None  # of a suspend that this worker has requested

    async def watch(self) -> None:
        """Wait for the computer's sleep."""
        await run(self._watch.watch())

    def report(self, draft: DraftReport) -> None:
        """Offer no slots before a sleep, and say good-bye."""
        draft.load = replace(draft.load, slots=0, withheld="this computer is about to sleep")
        draft.good_bye = self._good_bye

    def close(self) -> None:
        """Let the computer sleep."""
        self._watch.release()

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
                    self._good_bye = GoodBye(kind, self._cause or cause, self._facts())
                    self.agent.speak()
                    await _until(lambda: not self.agent.is_linked)
        finally:
            self._watch.release()

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
