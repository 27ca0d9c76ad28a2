"""The interpreters of this worker: those that answer calls, and those that wait for the next one of their session."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

from worker import scratch
from worker.launch.trees import Job, Launcher
from worker.warm.interpreter import Interpreter

IDLE_S = 60.0
"""So long an interpreter waits for another call."""


class Interpreters:
    def __init__(self, launcher: Launcher, idle_s: float = IDLE_S) -> None:
        self._launcher = launcher
        self._idle_s = idle_s
        self._numbers = count(1)
        self._all: set[Interpreter] = set()
        self._idle: dict[Interpreter, asyncio.TimerHandle] = {}  # the longest idle first
        self._removals: set[asyncio.Future[None]] = set()

    @property
    def idle(self) -> list[Interpreter]:
        return list(self._idle)

    async def take(self, key: str, job: Job) -> Interpreter:
        """One that nobody else uses until it is given back; OSError where there can be none."""
        for interpreter in reversed(self._idle):  # what has just been used is still in the processor's caches
            if interpreter.key == key and not interpreter.has_ended:
                self._idle.pop(interpreter).cancel()
                interpreter.wake()
                return interpreter
        folder = job.folder.parent / f"warm-{next(self._numbers)}"
        own = replace(job, folder=folder, environment={**job.environment, scratch.VARIABLE: str(folder)})
        interpreter = await Interpreter.start(self._launcher, own, key, self._ended)
        self._all.add(interpreter)
        return interpreter

    def give_back(self, interpreter: Interpreter) -> None:
        if not interpreter.has_ended:
            interpreter.rest()
            loop = asyncio.get_running_loop()
            self._idle[interpreter] = loop.call_later(self._idle_s, self._end, interpreter)

    def keep(self, most: int) -> None:
        """End the longest idle: so many may wait for a call."""
        for interpreter in self.idle[: max(0, len(self._idle) - most)]:
            self._end(interpreter)

    def close(self) -> None:
        for interpreter in self._all:
            interpreter.kill()

    def _end(self, interpreter: Interpreter) -> None:
        self._idle.pop(interpreter).cancel()
        interpreter.kill()

    def _ended(self, interpreter: Interpreter) -> None:
        self._all.discard(interpreter)
        if interpreter in self._idle:
            self._idle.pop(interpreter).cancel()
        removal = asyncio.get_running_loop().run_in_executor(None, _remove, interpreter)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)


def _remove(interpreter: Interpreter) -> None:
    interpreter.remove()
    scratch.remove_empty(interpreter.folder.parent)  # that of its session
