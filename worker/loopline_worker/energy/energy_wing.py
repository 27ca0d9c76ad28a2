"""The agent's wing for energy: each attempt's CPU time, at the price of a CPU-second when it was used.

An attempt that is shorter than an interval between readings is charged at the price of the interval before. While the
price is not known, as after a reading that failed, CPU time costs nothing: energy is missing then, never invented.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
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
from loopline_worker.energy.energy_price import EnergyPrice, Remainder
from loopline_worker.energy.power_sources import PowerSource
from loopline_worker.host.boot_clock import boot_s
from loopline_worker.launch.interface import Job, Tree

log = logging.getLogger(__name__)

_EVERY_S, _IDLE_EVERY_S = 10.0, 60.0
"""Time between readings, with and without tasks."""
_LONGEST_S = 300.0
"""A longer interval is not used: a counter may have wrapped around more than once."""
_SUSPENDED_S = 0.5
"""An interval with more time in suspend is not used: nothing was measured, or a counter was reset."""


class Energy(AgentWing):
    """The energy of this worker's attempts."""

    concerns = ("attempt",)  # all

    def __init__(self, kind: EnergySource, price: EnergyPrice, is_woken: Callable[[], bool] = lambda: False) -> None:
        """``is_woken``: whether the computer is on because the grid woke it."""
        self.kind, self._price, self._is_woken = kind, price, is_woken
        self._remainder = Remainder()
        self._parts = WeakSet[EnergyPart]()
        self._runs = asyncio.Event()  # a task has started or continues

    def prepare(self, run: Run, job: Job) -> EnergyPart:
        """Return the account of a new attempt."""
        part = EnergyPart(self.kind, self._price, on_run=self._runs.set, on_end=self._parts.discard)
        self._parts.add(part)
        return part

    async def measure(
        self,
        source: PowerSource,
        busy_cpu_s: Callable[[], float],
        kept: KeptIdlePower | None = None,
        apart_j: Callable[[], float] = lambda: 0.0,
    ) -> NoReturn:
        """Measure from now on. ``busy_cpu_s`` returns the CPU time of all programs since the boot.

        ``apart_j``: joules in the figures of the source that tasks are charged for elsewhere.
        """
        before = time.monotonic(), busy_cpu_s(), apart_j()
        suspended_s = _suspended_s()
        while True:
            now = time.monotonic(), busy_cpu_s(), apart_j()  # a command may take seconds to answer
            elapsed_s, cpu_s, elsewhere_j = (one - other for one, other in zip(now, before, strict=True))
            measured = await source.joules(elapsed_s)
            before, suspended_before_s, suspended_s = now, suspended_s, _suspended_s()
            if elapsed_s > _LONGEST_S or suspended_s - suspended_before_s > _SUSPENDED_S:
                measured = None
            self._price.add(measured, elapsed_s, cpu_s, elsewhere_j)
            for part in self._parts:
                part.charge()
            self._charge_in_full(None if measured is None else measured - elsewhere_j)
            if measured is not None and kept:
                kept.keep(measured / elapsed_s)
            await self._pause()

    def _charge_in_full(self, joules: float | None) -> None:
        """Charge what is left of an interval to the running attempts, if the grid woke this computer."""
        self._remainder.add(joules if self._is_woken() else None, self._price.charged_j)
        if self.agent.is_in_use:
            self._remainder.forget()
        running = [part for part in self._parts if part.is_running]
        each_j = self._remainder.share_out(len(running))
        for part in running:
            part.joules += each_j

    async def _pause(self) -> None:
        """Wait until the next reading is due: without running tasks, soon after the start of one."""
        await asyncio.sleep(_EVERY_S)
        if not any(part.is_running for part in self._parts):
            self._runs.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_EVERY_S - _EVERY_S):
                    await self._runs.wait()


def _suspended_s() -> float:
    """Return the time in suspend since the boot, in seconds; 0 where no clock tells it."""
    return boot_s() - time.monotonic()


class EnergyPart(AttemptPart):
    """The account of one attempt."""

    _attempt: OngoingAttempt

    def __init__(
        self,
        kind: EnergySource,
        price: EnergyPrice,
        *,
        on_run: Callable[[], None],
        on_end: Callable[[EnergyPart], None],
    ) -> None:
        self._kind, self._price, self._on_run, self._on_end = kind, price, on_run, on_end
        self._cpu_s = self.joules = 0.0

    def attach(self, attempt: OngoingAttempt) -> None:
        """Set the attempt."""
        self._attempt = attempt

    @property
    def is_running(self) -> bool:
        """True if its process has begun and is not frozen."""
        return self._attempt.held.wall_s > 0 and not self._attempt.is_frozen

    def started(self, tree: Tree) -> None:
        """Have a reading soon."""
        self._on_run()

    def on_frozen(self, is_frozen: bool) -> None:
        """Have a reading soon once the task continues."""
        if not is_frozen:
            self._on_run()

    def charge(self) -> None:
        """Charge the CPU time since the last call at the present price."""
        self._attempt.measure()
        self._charge_until(self._attempt.held.cpu_s, is_measured=True)

    def complete(self, result: Result) -> Result:
        """Close the account, and add the attempt's energy to its result, unless there is none."""
        self._charge_until(result.cpu_s, is_measured=False)
        self._on_end(self)
        if self.joules <= 0:
            return result
        return replace(result, joules={**(result.joules or {}), self._kind: round(self.joules, 3)})

    def after_end(self) -> None:
        """Close the account of an attempt without a result."""
        self._on_end(self)

    def _charge_until(self, cpu_s: float, *, is_measured: bool) -> None:
        if cpu_s > self._cpu_s:
            self.joules += self._price.charge(cpu_s - self._cpu_s, is_measured=is_measured)
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
