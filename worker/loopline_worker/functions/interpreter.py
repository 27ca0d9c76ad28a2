"""One warm interpreter: a tree that makes the calls of one task after the other, and stands still between them."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from loopline_worker.attempts import scratch
from loopline_worker.functions.append_files import Written
from loopline_worker.functions.channel import Channel, Line
from loopline_worker.launch.interface import Ended, Job, Launcher, Tree

PROGRAM = Path(__file__).parent / "program" / "call_loop.py"
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


@dataclass(slots=True)  # not frozen: that makes the making of one twice as dear
class Answer:
    """To one task: how its calls went."""

    exit_code: int
    reason: str = ""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    strays: int = 0  # as far as was seen in passing


class Interpreter:
    """``on_end`` is called once nothing of it is left."""

    def __init__(
        self,
        tree: Tree,
        channel: Channel,
        key: Hashable,
        folder: Path,
        files: tuple[Written, Written, Written],
        on_end: Callable[[Interpreter], None],
    ) -> None:
        self.key = key
        self.folder = folder
        self.tree = tree
        self.used_cpu_s = 0.0  # by the calls that have ended
        self.is_ready = False
        self.is_frozen = False
        self._is_killed = False  # it may take a moment
        self.functions: set[str] = set()  # that it has loaded
        self.stdout, self.stderr, self.ends = files
        self._has_ends = True
        self._holders = 1  # we, until it has ended
        self._made = ""  # the folder of a call, ...
        self._clean = ""  # ... where nothing was left in it
        self._asked: Mapping[str, Any] = {}  # last
        self._asked_at = 0.0
        self._last_pid = 0  # when it was
        self._channel = channel
        self._own = 0  # processes, when nothing is called
        self._resting_since: float | None = None
        self._nightfall: asyncio.TimerHandle | None = None
        self._end = asyncio.create_task(self._see_through(on_end))

    @classmethod
    async def start(cls, launcher: Launcher, job: Job, key: Hashable, on_end: Callable[[Interpreter], None]) -> Self:
        """``job``: its folder and what holds there."""
        folder = Path(job.folder)
        scratch.make(folder)
        program = folder / ".interpreter.py"  # where a sandbox shows it
        shutil.copyfile(PROGRAM, program)
        with ExitStack() as on_failure:
            files: list[Written] = []
            for _ in range(3):
                files.append(Written(folder))
                on_failure.callback(files[-1].close)
            ours, theirs = socket.socketpair()
            on_failure.callback(ours.close)
            with theirs:
                own = replace(job, command=[*job.command, str(program)], makes_folder=False)
                tree = await launcher.start(own, theirs.fileno(), files[1].file)
            on_failure.pop_all()
        interpreter = cls(tree, Channel(ours), key, folder, (files[0], files[1], files[2]), on_end)
        with suppress(OSError):  # it is gone, as the first call will find
            interpreter._channel.send({}, [files[0].file, files[2].file])
        return interpreter

    @property
    def has_ended(self) -> bool:
        return self._is_killed or self._end.done() or not self._channel.is_open

    def make_folder(self, folder: str) -> None:
        """For the next call: that of the last one where nothing was left in it. OSError: no room."""
        clean, self._clean, self._made = self._clean, "", folder
        if clean:
            try:
                os.rename(clean, folder)  # noqa: PTH104 - it is text
                return
            except OSError:
                scratch.remove(Path(clean))
        scratch.make(Path(folder))

    def leave_folder(self) -> None:
        """The last call's is not the next one's: there is, or may be, something in it."""
        self._clean = ""

    async def call(self, message: dict[str, Any], files: Sequence[int]) -> Answer | Ended:
        """``Ended``: it is gone, and did not answer."""
        if not self.is_ready and not await self._get_ready():
            return await self._last_words()
        self.ask(message, files)
        return await self.conclude(self.heed(await self._channel.line()))

    def ask(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        """One that is ready; what it says then is to be ``heeded``."""
        self._asked, self._asked_at, self._last_pid = message, time.monotonic(), _last_pid()
        try:
            self._channel.send(message, files)
        except OSError:
            self.kill()

    def listen(self, listener: Callable[[Line], None]) -> None:
        """Be told what it says next."""
        self._channel.listen(listener)

    def heed(self, line: Line) -> Answer | Ended | None:
        """What that means, as far as it is known at once; ``conclude`` does the rest. None: it is gone."""
        if line is None:
            return None
        try:
            answer = _checked(line)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            self.kill()
            return Ended(exit_code=1, reason="its interpreter gave an answer that makes no sense")
        if line.get("is_loaded") is True:
            self.functions.add(self._asked["function"])
        if line.get("is_clean") is True and self._asked["folder"] == self._made:
            self._clean = self._made
        self._account(answer)
        return answer

    async def conclude(self, heard: Answer | Ended | None) -> Answer | Ended:
        if heard is None:
            return await self._last_words()
        if isinstance(heard, Answer) and heard.strays:
            heard.strays = await self._count_strays()
        return heard

    @property
    def has_clean_folder(self) -> bool:
        return bool(self._clean)

    def rest(self) -> None:
        """No call is under way: soon it stands still, whatever it has left running in itself."""
        self._resting_since = time.monotonic()
        if self._nightfall is None:
            self._wait_for_night(_REST_AFTER_S)

    def wake(self) -> None:
        self._resting_since = None  # the timer finds that out: most calls are followed by another one
        if self.is_frozen:
            self.is_frozen = False
            self.tree.thaw()

    def kill(self) -> None:
        self._is_killed = True
        if self._nightfall:
            self._nightfall.cancel()
        if not self._end.done():
            self.tree.kill()

    async def ended(self) -> Ended:
        return await asyncio.shield(self._end)

    def clear(self) -> None:
        """What the calls of a task wrote has been read."""
        for file in (self.stdout, self.stderr, self.ends):
            file.clear()

    def take_ends(self) -> Written:
        """It has ended: what its calls came to is the caller's, to close."""
        self._has_ends = False
        return self.ends

    def hold(self) -> None:
        """Somebody reads what is written there; until released as often."""
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            for file in (self.stdout, self.stderr, *([self.ends] if self._has_ends else [])):
                file.close()

    def remove(self) -> None:
        """What it had on this computer."""
        scratch.remove(self.folder)
        if self._clean:
            scratch.remove(Path(self._clean))

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

    def _account(self, answer: Answer) -> None:
        """From a program that the function may have changed: what it says of its CPU time is looked at where it is
        more than one core had; whether it left anything running, where anybody started anything meanwhile.
        """
        cpu_s = answer.cpu_s
        if cpu_s > self.used_cpu_s + time.monotonic() - self._asked_at:
            cpu_s = min(cpu_s, self.tree.measure().cpu_s + _UNSEEN_CPU_S)
        before_s, self.used_cpu_s = self.used_cpu_s, max(cpu_s, self.used_cpu_s)
        answer.cpu_s = self.used_cpu_s - before_s
        answer.strays = 0 if 0 < self._last_pid == _last_pid() else self._strays()

    def _strays(self) -> int:
        return max(0, self.tree.count() - self._own) if self._own else 0

    async def _count_strays(self) -> int:
        """How many processes the call has left; those that are just ending do not count."""
        for _ in range(_LOOKS_AT_STRAYS - 1):
            await asyncio.sleep(_RETRY_S)
            if not (strays := self._strays()):
                break
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
            self.release()
            asyncio.get_running_loop().call_soon(on_end, self)

    def _wait_for_night(self, seconds: float) -> None:
        self._nightfall = asyncio.get_running_loop().call_later(seconds, self._fall_asleep)

    def _fall_asleep(self) -> None:
        self._nightfall = None
        if self._resting_since is None or self._end.done():
            return
        left_s = self._resting_since + _REST_AFTER_S - time.monotonic()
        if left_s > 0:
            self._wait_for_night(left_s)
        else:
            self.tree.freeze()
            self.is_frozen = True


class _LastPid:
    """The number that was last given to a process or thread, by which one sees that none was started since; 0 where
    the system does not say.
    """

    def __init__(self) -> None:
        self._file = -1
        with suppress(OSError):
            self._file = os.open("/proc/loadavg", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __call__(self) -> int:
        if self._file < 0:
            return 0
        try:
            return int(os.pread(self._file, 100, 0).rsplit(None, 1)[-1])
        except (OSError, ValueError):
            return 0


_last_pid = _LastPid()


def _checked(line: dict[str, Any]) -> Answer:
    """Such as the master takes; KeyError, TypeError, ValueError, OverflowError, RecursionError where it is not."""
    reason = printable(str(line["reason"]))
    answer = Answer(int(line["exit_code"]), reason, float(line["cpu_s"]), int(line["peak_memory_bytes"]))
    if answer.exit_code not in (0, 1) or not 0 <= answer.cpu_s <= _MOST_CPU_S:
        raise ValueError("out of bounds")
    if not 0 <= answer.peak_memory_bytes <= _MOST_BYTES:
        raise ValueError("out of bounds")
    return answer


def printable(reason: str) -> str:
    """An exception's text may hold anything."""
    if reason.isascii() and reason.isprintable():
        return reason[:_LONGEST_REASON]
    reason = reason.encode(errors="replace").decode()
    return "".join(letter if letter.isprintable() else " " for letter in reason)[:_LONGEST_REASON]
