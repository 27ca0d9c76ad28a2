"""Limits that commands of the administrator set, because licences are used outside the grid, too.

Each command is run once a minute and prints the number of units that tasks of the grid may hold. If it fails or
hangs, the last number stays in force, also across a restart of the master.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loopline_master.commands.command import run
from loopline_master.core.events import LimitChanged
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_master.core.wings.resources.limit import WHOLE_GRID
from loopline_master.engine import Engine
from loopline_master.timings import LIMIT_COMMAND_EVERY_S
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import LimitsView, LimitView

log = logging.getLogger(__name__)

_AT_ONCE = 8
_MOST_UNITS = 1_000_000
_HINT = "change the setting limit_commands, or have the command print another number"


@dataclass(frozen=True, slots=True)
class Failure:
    """The failures of a command since it last succeeded."""

    since: float  # of the wall clock, in seconds since 1970
    reason: str  # the latest


class LimitCommands:
    """Asks the commands. ``failures``: why some fail now, by the name of their limit."""

    def __init__(self, commands: Mapping[str, Sequence[str]], engine: Engine, scheduler: Scheduler) -> None:
        self._commands, self._engine = commands, engine
        self._counts = scheduler.state.own(CountedUnits)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self.failures: dict[str, Failure] = {}

    async def run(self) -> None:
        """Ask every command once a minute, until cancelled."""
        await asyncio.gather(*map(self._keep_asking, self._commands))

    async def _keep_asking(self, name: str) -> None:
        while True:
            await self._ask(name)
            await asyncio.sleep(LIMIT_COMMAND_EVERY_S)

    def check_is_free(self, name: str) -> None:
        """Raises LooplineError if a command sets this limit of the grid."""
        if name in self._commands:
            raise LooplineError("has_command", f"the limit {name} is set by its limit_command", _HINT, status=409)

    def annotate(self, view: LimitsView) -> LimitsView:
        """Add notes on limits that commands set, and the reasons why others are not set yet."""
        limits = [one.model_copy(update={"note": self._note(one)}) for one in view.limits]
        missing = self.failures.keys() - {one.name for one in limits if one.note}
        return LimitsView(limits=limits, unset={name: self.failures[name].reason for name in sorted(missing)})

    def _note(self, limit: LimitView) -> str:
        if limit.name not in self._commands or limit.per_user or limit.user is not None:
            return ""
        failure = self.failures.get(limit.name)
        if failure is None:
            return "set by its limit_command"
        return f"its limit_command has failed for {(time.time() - failure.since) / 60:.0f} min: {failure.reason}"

    async def _ask(self, name: str) -> None:
        in_use = self._counts.used[name, WHOLE_GRID]
        try:
            async with self._places:
                answer = await run(self._commands[name], LOOPLINE_LIMIT=name, LOOPLINE_IN_USE=str(in_use))
            units = _units(answer)
            if self._counts.allowed.get(name, {}).get(WHOLE_GRID) != units:
                await self._engine.ask(LimitChanged(name, WHOLE_GRID, units))
        except LooplineError as error:
            before = self.failures.get(name)
            if before is None:
                log.warning("the limit %s stays as it is: %s", name, error.message)
            self.failures[name] = Failure(before.since if before else time.time(), error.message)
        else:
            if self.failures.pop(name, None):
                log.warning("the command of the limit %s works again", name)


def _units(answer: str) -> int:
    """Return the number that a command printed. Raises LooplineError."""
    text = answer.strip()
    if text.isascii() and text.isdecimal() and int(text) <= _MOST_UNITS:
        return int(text)
    raise LooplineError("command", f"it printed {text[:50]!r} in place of a number of units")
