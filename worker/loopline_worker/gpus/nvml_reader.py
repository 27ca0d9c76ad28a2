"""Readings of NVIDIA's GPUs, each by a process that is abandoned if it does not answer."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_PROGRAM = Path(__file__).with_name("nvml_program.py")
_ANSWERS_WITHIN_S = 10.0
"""Opening an unused GPU takes seconds."""
_NOT_MEASURED = frozenset({3, 4, 12, 13})
"""NVML's errors that say nothing about the GPU: not supported, no permission, no library, no such function."""
_WORDS = {
    6: "the driver does not know it any more",
    9: "the driver is not loaded",
    15: "it is lost: it has fallen off the bus",
    16: "it has to be reset",
    18: "the driver was upgraded while it was in use: restart this computer",
    28: "the driver does not find it",
}
HANGS = "a call of the driver does not return"


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A GPU as NVML shows it."""

    trouble: str = ""  # why the GPU does not work; empty: it does
    memory_bytes: int = 0
    free_bytes: int = 0
    capability: str = ""
    uses: dict[int, float] | None = None  # per cent of it that each process uses; None: not measured
    joules: float | None = None  # since the driver was loaded; None: not measured


class NvmlReader:
    """Reads GPUs, one reading at a time."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = library
        self._abandoned: Process | None = None
        self._turn = asyncio.Lock()

    async def read(self, places: Sequence[str], over_s: float) -> dict[str, GpuReading]:
        """Return a reading of each GPU, with its use in the last ``over_s`` seconds."""
        async with self._turn:
            if self._abandoned and self._abandoned.returncode is None:  # another one would hang as well
                return dict.fromkeys(places, GpuReading(HANGS))
            self._abandoned = None
            try:
                return await self._ask(places, over_s)
            except TimeoutError:
                return dict.fromkeys(places, GpuReading(HANGS))
            except (OSError, ValueError):  # there is no process to be had, or the library took it down
                return dict.fromkeys(places, GpuReading())

    async def _ask(self, places: Sequence[str], over_s: float) -> dict[str, GpuReading]:
        since_us = str(int((time.time() - over_s) * 1e6))
        words = [sys.executable, "-I", "-S", str(_PROGRAM), self._library, since_us, *places]
        process = await asyncio.create_subprocess_exec(*words, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
        assert process.stdout
        try:
            async with asyncio.timeout(_ANSWERS_WITHIN_S):
                line = await process.stdout.readline()
                await process.wait()
        except BaseException:  # the time is up, or the agent ends
            process.kill()  # a call of the driver may outlast this, so nothing waits for it
            self._abandoned = process
            raise
        said = json.loads(line)
        return {place: _reading(said[place]) for place in places}


def _reading(said: dict[str, Any]) -> GpuReading:
    if error := said.get("error"):
        is_broken = error not in _NOT_MEASURED
        return GpuReading(_WORDS.get(error, f"NVML reports error {error}") if is_broken else "")
    uses = said["uses"]
    percents = None if uses is None else {int(pid): percent for pid, percent in uses.items()}
    joules = None if said["millijoules"] is None else said["millijoules"] / 1000
    return GpuReading("", said["memory_bytes"], said["free_bytes"], said["capability"], percents, joules=joules)
