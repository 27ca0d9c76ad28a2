"""One warm interpreter: a tree that answers calls, one at a time, and stands still between them."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from worker import scratch
from worker.launch.trees import Ended, Job, Launcher, Tree
from worker.warm.channel import Channel

PROGRAM = Path(__file__).with_name("program.py")
_REST_AFTER_S = 0.1
_TRIES = 100
_RETRY_S = 0.01
_LOOKS_AT_STRAYS = 5
_LONGEST_REASON = 400
_MOST_CPU_S = 1e9
_UNSEEN_CPU_S = 0.1
"""The system counts in ticks: so much more an interpreter may say that it has used, in all its life."""
_MOST_BYTES = 2**50
_END_WITHIN_S = 1.5
"""Of an interpreter that no longer speaks, before it is killed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """To one call: that of the function itself."""

    exit_code: int
    reason: str = ""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    strays: int = 0


class Interpreter:
    """``on_end`` is called once nothing of it is left."""

    def __init__(self, tree: Tree, channel: Channel, key: str, folder: Path, on_end: Callable[[Interpreter], None]):
        self.key = key
        self.folder = folder
        self.tree = tree
        self.used_cpu_s = 0.0  # by the calls that have ended
        self.is_ready = False
        self._channel = channel
        self._own = 0  # processes, when nothing is called
        self._resting: asyncio.TimerHandle | None = None
        self.is_frozen = False
        self._end = asyncio.create_task(self._see_through(on_end))

    @classmethod
    async def start(
        cls, launcher: Launcher, job: Job, key: str, stderr: int, on_end: Callable[[Interpreter], None]
    ) -> Self:
        """``job``: its folder and what holds there; what goes wrong at first is told on ``stderr``."""
        scratch.make(job.folder)
        program = job.folder / ".interpreter.py"  # where a sandbox shows it
        shutil.copyfile(PROGRAM, program)
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as on_failure:
            on_failure.callback(ours.close)
            tree = await launcher.start(replace(job, command=[*job.command, str(program)]), theirs.fileno(), stderr)
            on_failure.pop_all()
        return cls(tree, Channel(ours), key, job.folder, on_end)

    @property
    def has_ended(self) -> bool:
        return self._end.done() or not self._channel.is_open

    async def call(self, message: dict[str, Any], files: Sequence[int]) -> Answer | Ended:
        """``Ended``: it is gone, and did not answer."""
        if not self.is_ready and not await self._get_ready():
            return await self._last_words()
        try:
            self._channel.send(message, files)
        except OSError:
            self.kill()
        answer = await self._channel.line()
        return await self._read(answer) if answer else await self._last_words()

    def rest(self) -> None:
        """No call is under way: soon it stands still, whatever it has left running in itself."""
        self._resting = asyncio.get_running_loop().call_later(_REST_AFTER_S, self._freeze)

    def wake(self) -> None:
        if self._resting:
            self._resting.cancel()
            self._resting = None
        if self.is_frozen:
            self.is_frozen = False
            self.tree.thaw()

    def kill(self) -> None:
        if self._resting:
            self._resting.cancel()
        if not self._end.done():
            self.tree.kill()

    async def ended(self) -> Ended:
        return await asyncio.shield(self._end)

    async def _get_ready(self) -> bool:
        if not await self._channel.line():
            return False
        self.is_ready = True
        for _ in range(_TRIES):  # it may be ready before its guard has said that it has begun
            self._own = self.tree.count()
            if self._own:
                break
            await asyncio.sleep(_RETRY_S)
        return True

    async def _read(self, line: dict[str, Any]) -> Answer | Ended:
        """From a program that the function may have changed: whatever is not as it should be ends it."""
        try:
            answer = _checked(line)
        except (KeyError, TypeError, ValueError, OverflowError):
            self.kill()
            return Ended(exit_code=1, reason="its interpreter gave an answer that makes no sense")
        cpu_s = min(answer.cpu_s, self.tree.measure().cpu_s + _UNSEEN_CPU_S)
        before_s, self.used_cpu_s = self.used_cpu_s, max(cpu_s, self.used_cpu_s)
        return replace(answer, cpu_s=self.used_cpu_s - before_s, strays=await self._strays())

    async def _strays(self) -> int:
        """How many processes the call has left; those that are just ending do not count."""
        for _ in range(_LOOKS_AT_STRAYS):
            strays = max(0, self.tree.count() - self._own) if self._own else 0
            if not strays:
                break
            await asyncio.sleep(_RETRY_S)
        return strays

    async def _last_words(self) -> Ended:
        """Why it did not answer."""
        try:
            async with asyncio.timeout(_END_WITHIN_S):
                ended = await self.ended()
        except TimeoutError:  # it has closed the socket, and goes on
            self.tree.kill()
            ended = await self.ended()
        used_s = max(0.0, ended.cpu_s - self.used_cpu_s)
        return replace(ended, cpu_s=used_s)

    async def _see_through(self, on_end: Callable[[Interpreter], None]) -> Ended:
        try:
            return await self.tree.wait()
        finally:
            self._channel.close()
            asyncio.get_running_loop().call_soon(on_end, self)

    def _freeze(self) -> None:
        self._resting = None
        if not self._end.done():
            self.tree.freeze()
            self.is_frozen = True


def _checked(line: dict[str, Any]) -> Answer:
    """Such as the master takes; KeyError, TypeError, ValueError, OverflowError where it is not."""
    reason = str(line["reason"]).encode(errors="replace").decode()  # an exception's text may hold anything
    reason = "".join(letter if letter.isprintable() else " " for letter in reason)[:_LONGEST_REASON]
    answer = Answer(int(line["exit_code"]), reason, float(line["cpu_s"]), int(line["peak_memory_bytes"]))
    if answer.exit_code not in (0, 1) or not 0 <= answer.cpu_s <= _MOST_CPU_S:
        raise ValueError("out of bounds")
    if not 0 <= answer.peak_memory_bytes <= _MOST_BYTES:
        raise ValueError("out of bounds")
    return answer
