"""The interpreters of this worker: those that answer calls, and those that wait for the next one of their session."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import count

from loopline_worker.attempts import scratch
from loopline_worker.functions.interpreter import Interpreter
from loopline_worker.launch.interface import Job, Launcher
from loopline_worker.timings import INTERPRETER_IDLE_S

_SAME_EVERYWHERE = {"PYTHONHASHSEED": "0"}
"""A set is pickled in the order of its hashes: two workers' values are to be compared."""


class Interpreters:
    """``python``: what they run, the beginning of a command."""

    def __init__(self, launcher: Launcher, python: Sequence[str], idle_s: float = INTERPRETER_IDLE_S) -> None:
        self._launcher = launcher
        self._python = python
        self._idle_s = idle_s
        self._numbers = count(1)
        self._all: set[Interpreter] = set()
        self._idle: dict[Interpreter, float] = {}  # since when; the longest idle first
        self._looking: asyncio.TimerHandle | None = None  # for those that have been so for too long
        self._removals: set[asyncio.Future[None]] = set()

    @property
    def idle(self) -> list[Interpreter]:
        return list(self._idle)

    def find(self, key: Hashable) -> Interpreter | None:
        """One that waits for a call."""
        for interpreter in reversed(self._idle):  # what has just been used is still in the processor's caches
            if interpreter.key == key and not interpreter.has_ended:
                return interpreter
        return None

    def take(self, interpreter: Interpreter) -> None:
        """Nobody else uses it until it is given back."""
        del self._idle[interpreter]
        interpreter.wake()

    async def start(self, key: Hashable, job: Job) -> Interpreter:
        """A new one, likewise; OSError where there can be none."""
        folder = f"{job.room}{os.sep}warm-{next(self._numbers)}"
        own = replace(self.under_python(job), folder=folder)
        own.environment[scratch.VARIABLE] = folder
        interpreter = await Interpreter.start(self._launcher, own, key, self._ended)
        self._all.add(interpreter)
        return interpreter

    def under_python(self, job: Job, *arguments: str) -> Job:
        environment = {**_SAME_EVERYWHERE, **job.environment}
        return replace(job, command=[*self._python, *arguments], environment=environment)

    def give_back(self, interpreter: Interpreter) -> None:
        if not interpreter.has_ended:
            interpreter.rest()
            self._idle[interpreter] = time.monotonic()
            if self._looking is None:
                self._look_in(self._idle_s)

    def keep(self, most: int) -> None:
        """End the longest idle: so many may wait for a call."""
        for interpreter in self.idle[: max(0, len(self._idle) - most)]:
            self._end(interpreter)

    def close(self) -> None:
        if self._looking:
            self._looking.cancel()
        for interpreter in self._all:
            interpreter.kill()

    def _look_in(self, seconds: float) -> None:
        self._looking = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._looking = None
        long_ago = time.monotonic() - self._idle_s
        for interpreter, since in list(self._idle.items()):
            if since > long_ago:
                self._look_in(since - long_ago)
                return
            self._end(interpreter)

    def _end(self, interpreter: Interpreter) -> None:
        del self._idle[interpreter]
        interpreter.kill()

    def _ended(self, interpreter: Interpreter) -> None:
        self._all.discard(interpreter)
        self._idle.pop(interpreter, None)
        removal = asyncio.get_running_loop().run_in_executor(None, _remove, interpreter)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)


def _remove(interpreter: Interpreter) -> None:
    interpreter.remove()
    scratch.remove_empty(interpreter.folder.parent)  # that of its session
