"""Sources of measurements: counters of the processor, or a command that reads a meter at the socket."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from loopline_shared.protocol.attempt_figures import EnergySource
from loopline_worker.supervisor import requests

MAX_WATTS = 20_000.0
"""A computer draws less: a higher figure is a fault of the meter."""
_MAX_PACKAGE_WATTS = 1000.0
"""A package draws less: its counter was reset, and did not wrap around."""
_ANSWERS_WITHIN_S = 10.0
_MOST_BYTES = 100


class PowerSource(Protocol):
    """A source of measurements."""

    kind: EnergySource

    async def joules(self, elapsed_s: float) -> float | None:
        """Return the energy since the last call, ``elapsed_s`` seconds ago; None: not known, or the first call."""


Counts = dict[str, tuple[int, int]]
"""By package: its count and the range of the counter, in microjoules."""


class PackageCounters:
    """Counters of all processor packages. ``read`` returns them as package_counters.py does, or raises OSError."""

    kind = EnergySource.PACKAGE

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._before: Counts | None = None

    async def joules(self, elapsed_s: float) -> float | None:
        """Return what all packages used since the last call."""
        before, self._before = self._before, await asyncio.to_thread(self.counts)
        return joules_between(before, self._before, elapsed_s) if before and self._before else None

    def counts(self) -> Counts | None:
        """Read the counters now; None if they cannot be read."""
        with suppress(OSError, ValueError):
            lines = (line.split(" ") for line in self._read().splitlines())
            return {name: (int(count), int(most)) for name, count, most in lines}
        return None


def joules_between(before: Counts, now: Counts, elapsed_s: float) -> float | None:
    """Return the energy between two readings. A counter may wrap around once in between.

    None if a package has come or gone, or a counter was reset.
    """
    if before.keys() != now.keys():
        return None
    total = 0.0
    for package, (count, most) in now.items():
        used = count - before[package][0]
        joules = (used if used >= 0 else used + most) / 1e6
        if not 0 <= joules <= _MAX_PACKAGE_WATTS * elapsed_s:
            return None
        total += joules
    return total


class WattsCommand:
    """A command that prints the power of the whole computer in watts, as a number without anything else, and ends."""

    kind = EnergySource.SOCKET

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._watts: float | None = None

    async def joules(self, elapsed_s: float) -> float | None:
        """Return the energy at the mean of the powers at both ends."""
        before, self._watts = self._watts, await self.watts()
        return (before + self._watts) / 2 * elapsed_s if before is not None and self._watts is not None else None

    async def watts(self) -> float | None:
        """Run the command. None if it fails, takes longer than 10 s, or prints no possible power."""
        process: Process | None = None
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, start_new_session=True
            )
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                assert process.stdout
                said = await _all_of(process.stdout)
                code = await process.wait()
            watts = float(said)
            return watts if code == 0 and 0 < watts <= MAX_WATTS else None  # a nan is not above 0
        except (OSError, ValueError):  # TimeoutError is an OSError
            return None
        finally:
            if process:
                with suppress(ProcessLookupError, PermissionError, AttributeError):  # Windows has no groups
                    os.killpg(process.pid, signal.SIGKILL)  # children may have outlived it


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    """Return everything until the end of the stream. Raises ValueError beyond 100 bytes."""
    said = b""
    while part := await stream.read(_MOST_BYTES):
        said += part
        if len(said) > _MOST_BYTES:
            raise ValueError("too long")
    return said


class DeclaredPower:
    """Watts that the operator declared: between idle and busy by the use of all processors."""

    kind = EnergySource.DECLARED

    def __init__(self, idle_w: float, joules_per_cpu_s: float, busy_cpu_s: Callable[[], float]) -> None:
        self._idle_w, self._joules_per_cpu_s, self._busy_cpu_s = idle_w, joules_per_cpu_s, busy_cpu_s
        self._used_s = busy_cpu_s()

    async def joules(self, elapsed_s: float) -> float:
        """Return what the computer used since the last call."""
        before, self._used_s = self._used_s, self._busy_cpu_s()
        return self._idle_w * elapsed_s + self._joules_per_cpu_s * (self._used_s - before)


def packages() -> PackageCounters | None:
    """Return the counters of this computer's packages; None unless this worker can read them."""
    if sys.platform != "linux":
        return None
    from loopline_worker.supervisor.users import package_counters

    zygote = requests.inherited()
    counters = PackageCounters(zygote.package_counters if zygote else package_counters.read)
    return counters if counters.counts() else None
