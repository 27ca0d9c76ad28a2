"""The allocator: checks demand and engine at intervals, and carries out the plan.

Commit, then speak: an allocation is on disk before it is submitted, so that a restart after a crash finds it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from loopline.client import AsyncClient
from loopline.elastic.engine import Engine, Wish
from loopline.elastic.plan import Allocation, AllocationPlan, Limits, Stage, plan
from loopline.elastic.records import Records
from loopline_shared.errors import LooplineError

log = logging.getLogger(__name__)


class Allocator:
    """Keeps as many allocations as the plan asks for. ``command_of`` returns the command line of a worker."""

    def __init__(
        self,
        client: AsyncClient,
        engine: Engine,
        records: Records,
        limits: Limits,
        wish: Wish,
        *,
        prefix: str,
        command_of: Callable[[str], Sequence[str]],
    ) -> None:
        self._client, self._engine, self._records = client, engine, records
        self._limits, self._wish, self._prefix, self._command_of = limits, wish, prefix, command_of
        self._said = ""

    async def keep(self, every_s: float) -> None:
        """Look and act until cancelled. A master or an engine that does not answer is asked again."""
        while True:
            try:
                await self.turn()
            except LooplineError as error:
                self._say(f"{error.message}; trying again in {every_s:g} s")
            await asyncio.sleep(every_s)

    async def turn(self) -> None:
        """Look at everything, and carry out what is planned."""
        await self.look()
        decided = await self.decide()
        for name in decided.cancel:
            await self._cancel(self._records.allocations[name])
        for _ in range(decided.submit):
            await self._submit()
        self._say(f"{self._standing()}: {decided.why}")

    async def decide(self) -> AllocationPlan:
        """Return the plan for the present demand."""
        demand = await self._client.demand()
        return plan(demand, list(self._records.allocations.values()), self._limits, time.time())

    async def look(self) -> None:
        """Note what has become of each allocation, and whose worker has joined."""
        here = {one.name: one async for one in self._client.workers()}
        for one in [one for one in self._records.allocations.values() if not one.is_over]:
            now = replace(one, has_joined=one.has_joined or one.name in here)
            now = await (self._look_again(now) if now.id else self._look_for(now))
            if now != one:
                self._records.put(now)
                if now.is_over:
                    log.info("%s is over%s", one.name, "" if now.has_joined else ", and its worker never joined")

    async def _look_again(self, one: Allocation) -> Allocation:
        stage = await asyncio.to_thread(self._engine.stage, one)
        return one.ended(time.time()) if stage is Stage.OVER else replace(one, stage=stage)

    async def _look_for(self, one: Allocation) -> Allocation:
        """Find an allocation that was noted down before a crash, and perhaps submitted.

        Where the engine cannot tell, it counts as queued for as long as it could be there.
        """
        found = await asyncio.to_thread(self._engine.find, one.name)
        if found:
            log.info("%s was submitted before a crash, as %s", one.name, found)
            return replace(one, id=found, stage=Stage.QUEUED)
        is_gone = found == "" or time.time() > one.asked_at + 2 * self._limits.time_limit_s
        return one.ended(time.time()) if is_gone else one

    async def _submit(self) -> None:
        one = Allocation(f"{self._prefix}-{secrets.token_hex(4)}", time.time())
        self._records.put(one)
        try:
            found = await asyncio.to_thread(self._engine.submit, one.name, self._command_of(one.name), self._wish)
        except LooplineError:
            self._records.put(one.ended(time.time()))
            raise
        self._records.put(replace(one, id=found, stage=Stage.QUEUED))
        log.info("%s is asked for, as %s", one.name, found)

    async def _cancel(self, one: Allocation) -> None:
        await asyncio.to_thread(self._engine.cancel, one)
        log.info("%s is called back", one.name)

    def _standing(self) -> str:
        stages = [one.stage for one in self._records.allocations.values() if not one.is_over]
        running = stages.count(Stage.RUNNING)
        return f"{running} running, {len(stages) - running} queued"

    def _say(self, words: str) -> None:
        """Log it, once for as long as it stays so."""
        if words != self._said:
            self._said = words
            log.info("%s", words)
