"""The agent's wing for energy: each attempt's CPU time, at the price of a CPU-second when it was used.

An attempt that is shorter than an interval between readings is charged at the price of the interval before. While the
price is not known, as after a reading that failed, CPU time costs nothing: energy is missing then, never invented.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn
from weakref import WeakSet

from loopline_shared.model import Result
from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts.agent_wing import AgentWing, AttemptPart, OngoingAttempt
from loopline_worker.energy.energy_price import EnergyPrice
from loopline_worker.energy.power_sources import PowerSource
from loopline_worker.host.boot_clock import boot_s
from loopline_worker.launch.interface import Job

log = logging.getLogger(__name__)

_EVERY_S, _IDLE_EVERY_S = 10.0, 60.0
"""Time between readings, with and without tasks."""
_LONGEST_S = 300.0
"""A longer interval is not used: the computer was asleep, and a counter may have begun again more than once."""


class Energy(AgentWing):
    """The energy of this worker's attempts."""

    concerns = ("attempt",)  # all

    def __init__(self, kind: EnergySource, price: EnergyPrice) -> None:
        """``price``: fixed, if the operator declared it; otherwise ``measure`` keeps it."""
        self.kind, self._price = kind, price
        self._parts = WeakSet[EnergyPart]()
        self._has_part = asyncio.Event()

    def prepare(self, run: Run, job: Job) -> EnergyPart:
        """Return the account of a new attempt."""
        part = EnergyPart(self.kind, self._price, self._parts.discard)
        self._parts.add(part)
        self._has_part.set()
        return part

    async def measure(
        self,
        source: PowerSource,
        busy_cpu_s: Callable[[], float],
        kept: KeptIdlePower,
        apart_j: Callable[[], float] = lambda: 0.0,
    ) -> NoReturn:
        """Measure from now on. ``busy_cpu_s`` returns the CPU time of all programs since the boot.

        ``apart_j``: joules in the figures of the source that tasks are charged for elsewhere.
        """
        before = boot_s(), busy_cpu_s(), apart_j()
        while True:
            measured = await source.joules(boot_s() - before[0])
            now = boot_s(), busy_cpu_s(), apart_j()
            elapsed_s, cpu_s, elsewhere_j = (one - other for one, other in zip(now, before, strict=True))
            before = now
            if elapsed_s > _LONGEST_S:
                measured = None
            self._price.add(measured, elapsed_s, cpu_s, elsewhere_j)
            for part in self._parts:
                part.charge()
            if measured is not None:
                kept.keep(measured / elapsed_s)
            await self._pause()

    async def _pause(self) -> None:
        """Wait until the next reading is due: without tasks, soon after the start of one."""
        await asyncio.sleep(_EVERY_S)
        if not self._parts:
            self._has_part.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_EVERY_S - _EVERY_S):
                    await self._has_part.wait()


class EnergyPart(AttemptPart):
    """The account of one attempt."""

    _attempt: OngoingAttempt

    def __init__(self, kind: EnergySource, price: EnergyPrice, on_end: Callable[[EnergyPart], None]) -> None:
        self._kind, self._price, self._on_end = kind, price, on_end
        self._cpu_s = self._joules = 0.0

    def attach(self, attempt: OngoingAttempt) -> None:
        """Set the attempt."""
        self._attempt = attempt

    def charge(self) -> None:
        """Charge the CPU time since the last call at the present price."""
        self._attempt.measure()
        self._charge_until(self._attempt.held.cpu_s)

    def complete(self, result: Result) -> Result:
        """Add the attempt's energy to its result, unless there is none."""
        self._charge_until(result.cpu_s)
        if self._joules <= 0:
            return result
        return replace(result, joules={**(result.joules or {}), self._kind: round(self._joules, 3)})

    def after_end(self) -> None:
        """Close the account."""
        self._on_end(self)

    def _charge_until(self, cpu_s: float) -> None:
        if cpu_s > self._cpu_s:
            self._joules += (self._price.joules_per_cpu_s or 0.0) * (cpu_s - self._cpu_s)
            self._cpu_s = cpu_s


class KeptIdlePower:
    """A file with the lowest power seen, so that a restarted agent need not wait until the computer is idle."""

    def __init__(self, file: Path, kind: EnergySource) -> None:
        self._file, self._kind = file, kind
        self.watts = self._read()

    def _read(self) -> float | None:
        with suppress(OSError, ValueError, AttributeError, TypeError):
            return float(json.loads(self._file.read_text("utf-8")).get(self._kind) or 0.0) or None
        return None

    def keep(self, watts: float) -> None:
        """Write the power if it is lower than the one in the file."""
        if self.watts is not None and watts >= self.watts:
            return
        self.watts = watts
        unfinished = self._file.with_suffix(".tmp")
        try:
            unfinished.write_text(json.dumps({self._kind: round(watts, 3)}), "utf-8")
            unfinished.replace(self._file)
        except OSError as error:
            log.warning("cannot keep the idle power: %s", error)
