"""The interpreter pool of this worker: interpreters that run calls, and idle ones that wait for the next."""

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
"""A set is pickled in the order of its hashes, and values of two workers are to be compared."""


class InterpreterPool:
    """All interpreters. ``python``: the program that they run, the beginning of a command."""

    def __init__(self, launcher: Launcher, python: Sequence[str], idle_s: float = INTERPRETER_IDLE_S) -> None:
        self._launcher = launcher
        self._python = python
        self._idle_s = idle_s
        self._numbers = count(1)
        self._all: set[Interpreter] = set()
        self.idle: dict[Interpreter, float] = {}
        """Interpreters that wait for a call, and since when; the longest idle first."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._removals: set[asyncio.Future[None]] = set()

    def find(self, key: Hashable) -> Interpreter | None:
        """Return an idle interpreter with this key, or None."""
        for interpreter in reversed(self.idle):  # the last one used is still in the processor's caches
            if interpreter.key == key and not interpreter.has_ended:
                return interpreter
        return None

    def acquire(self, interpreter: Interpreter) -> None:
        """Reserve an idle interpreter until it is released."""
        del self.idle[interpreter]
        interpreter.resume()

    async def start(self, key: Hashable, job: Job) -> Interpreter:
        """Start an interpreter and reserve it. Raises OSError if that is impossible."""
        folder = f"{job.room}{os.sep}interpreter-{next(self._numbers)}"
        own = replace(self.under_python(job), folder=folder, ends_at=None)  # the call alone is fenced
        own.environment[scratch.VARIABLE] = folder
        interpreter = await Interpreter.start(self._launcher, own, key, self._ended)
        self._all.add(interpreter)
        return interpreter

    def under_python(self, job: Job, *arguments: str) -> Job:
        """Return the job with the interpreter as its command, and these arguments."""
        environment = {**_SAME_EVERYWHERE, **job.environment}
        python = [job.python] if job.python else self._python
        return replace(job, command=[*python, *arguments], environment=environment)

    def release(self, interpreter: Interpreter) -> None:
        """Make an interpreter idle again, unless it has ended."""
        if not interpreter.has_ended:
            interpreter.start_idle_timer()
            self.idle[interpreter] = time.monotonic()
            if self._idle_timer is None:
                self._start_idle_timer(self._idle_s)

    def keep(self, most: int, idle_s: float = 0.0) -> None:
        """End the longest idle interpreters beyond ``most``, if they have been idle for at least ``idle_s``."""
        before = time.monotonic() - idle_s
        for interpreter, since in list(self.idle.items())[: max(0, len(self.idle) - most)]:
            if since <= before:
                self._end(interpreter)

    def close(self) -> None:
        """Kill all interpreters."""
        if self._idle_timer:
            self._idle_timer.cancel()
        for interpreter in self._all:
            interpreter.kill()

    def _start_idle_timer(self, seconds: float) -> None:
        self._idle_timer = asyncio.get_running_loop().call_later(seconds, self._end_long_idle)

    def _end_long_idle(self) -> None:
        self._idle_timer = None
        long_ago = time.monotonic() - self._idle_s
        for interpreter, since in list(self.idle.items()):
            if since > long_ago:
                self._start_idle_timer(since - long_ago)
                return
            self._end(interpreter)

    def _end(self, interpreter: Interpreter) -> None:
        del self.idle[interpreter]
        interpreter.kill()

    def _ended(self, interpreter: Interpreter) -> None:
        self._all.discard(interpreter)
        self.idle.pop(interpreter, None)
        removal = asyncio.get_running_loop().run_in_executor(None, _remove, interpreter)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)


def _remove(interpreter: Interpreter) -> None:
    interpreter.remove()
    scratch.remove_empty(interpreter.folder.parent)  # the folder of its session
