"""One attempt's tree on POSIX, by way of its guard."""

from __future__ import annotations

import asyncio
import errno
import math
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from loopline_worker.attempts.limits import Limits
from loopline_worker.launch.family import UsedByTree, for_all, signal_all, tree_of
from loopline_worker.launch.interface import Ended, Patron, Usage, usage_of
from loopline_worker.launch.sinks import Sink
from loopline_worker.supervisor import control_groups, priority, processes
from loopline_worker.supervisor.control_groups import Group
from loopline_worker.supervisor.orders import Breach, TaskOrder

if TYPE_CHECKING:
    from loopline_shared.model import AttemptId
    from loopline_worker.launch.supervisor_link import Line

_STOPPED = "TtZX"  # dead ones included
_OUR_MISTAKES = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class PosixTree:
    """``sinks``: where what it writes is to go, of stdout and stderr; none where it has files of its own. ``patron``
    is told of it by this ``name``; where there is none, somebody waits for it.
    """

    line: Line
    number = 0  # at its guard

    def __init__(
        self,
        order: TaskOrder,
        sinks: Sequence[Sink],
        limits: Limits,
        yields: bool,
        patron: Patron | None = None,
        name: AttemptId | None = None,
    ) -> None:
        self.order = order
        self.patron = patron
        self.name = name
        self.is_frozen = False  # or is to be
        self.began_at = math.inf  # by ``time.monotonic``
        self._sinks = sinks
        self._limits = limits
        self._yields = yields
        self._low_sessions: set[int] = set()
        self._is_held = False  # by a frozen group, or was
        self._must_thaw = False  # it could not be, the last time
        self._seen_cpu_s: dict[int, float] = {}  # of processes that are to stop
        self._used = UsedByTree()
        self._hits = 0, 0
        self._usage = Usage()
        self._has_ended = False
        self._ended: asyncio.Future[Ended] | None = None if patron else asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """At one stroke from here, for its guard is as low as itself; the guard sees to it that nothing is left."""
        if self._has_ended:
            return
        self.line.hold_back()
        if self.line.last is not self:  # it has ended, or was lined up itself
            return
        self.line.say("kill", self.number)
        if self._guard:  # of one that has not said who it is, nothing runs yet
            with suppress(OSError):
                signal_all(self._guard, signal.SIGKILL)

    def freeze(self) -> None:
        """Whatever runs in its place: it may have ended just now."""
        if not self._has_ended:
            self.line.hold_back()
            self._set_frozen(True)

    def thaw(self) -> None:
        self._set_frozen(False)

    def follow(self) -> None:
        if not self._has_ended:
            self.line.say("follow", self.number)

    def is_still(self) -> bool:
        """Stopped, or without processor time since the last call: it is waiting for its turn to stop.

        A process that is told to stop never again runs a line of its program; but on a busy computer one of the
        lowest priority may wait long until it shows. What cannot be seen is not known to stand still.
        """
        if self._has_ended:
            return True
        if not self._guard or sys.platform != "linux":  # elsewhere, signalled is all that can be known
            return bool(self._guard)
        try:
            tree, standing = tree_of(self._guard), self._group.standing()
        except OSError:
            return False
        before, self._seen_cpu_s = self._seen_cpu_s, {process.pid: process.cpu_s for process in tree}
        still = [
            process.state in _STOPPED or process.pid in standing or before.get(process.pid) == process.cpu_s
            for process in tree
        ]
        return bool(still) and all(still)

    def count(self) -> int:
        if not self._guard:
            return 0
        if sys.platform != "linux":
            return usage_of(self._guard, with_itself=False).processes
        with suppress(OSError):
            return sum(process.state not in "ZX" for process in tree_of(self._guard))
        return 0

    def measure(self) -> Usage:
        if not self._guard:
            return Usage()
        if self._must_thaw:
            self._set_frozen(False)
        with suppress(OSError):  # no file descriptor left: as it was
            self._usage = self._measure()
        return self._usage

    async def wait(self) -> Ended:
        assert self._ended
        try:
            return await self._ended
        except asyncio.CancelledError:
            self.line.close()  # nobody waits any more: its guard kills it
            raise

    # What its line says.

    def begins(self, before: PosixTree | None = None) -> None:
        """Its guard is at it; ``before``: whose place it takes, standing still where that is to stand still."""
        self._used = UsedByTree(self.line.past_cpu_s)
        self._hits = self.line.hits
        self.began_at = time.monotonic()
        if before and self.patron and self.name and before.name:
            self._is_held, before._is_held = before._is_held, False
            self.patron.begins(self.name, before.name)

    def heed(self, news: dict[str, Any]) -> bool:
        """Whether that was the last of it."""
        if "stdout" in news:
            self._sinks[0].feed(news.pop("stdout"))
        if "stderr" in news:
            self._sinks[1].feed(news.pop("stderr"))
        if "runs" in news and self.is_frozen:
            self._set_frozen(True)
        return "runs" not in news and bool(news)

    def end(self, news: dict[str, Any]) -> None:
        self._end(_ended(news))

    def lose(self) -> None:
        """Its guard was killed."""
        self._end(Ended(trouble="its guard was killed"))

    def _end(self, ended: Ended) -> None:
        if self._is_held:  # the next task must not find itself frozen as soon as it is moved there
            self._group.freeze(False)
        self._has_ended = True
        if self.patron and self.name:
            self.patron.ended(self.name, ended)
        elif self._ended and not self._ended.done():
            self._ended.set_result(ended)

    # How it is looked at and stopped.

    @property
    def _guard(self) -> int:
        """0 where it has not said who it is, or has nothing more to do with this tree."""
        return 0 if self._has_ended else self.line.guard

    @property
    def _group(self) -> Group:
        return self.line.group

    def _set_frozen(self, frozen: bool) -> None:
        """Now, or as soon as it runs; where we lack the means, again when it is next looked at."""
        self.is_frozen = frozen
        if not frozen:
            self._seen_cpu_s.clear()
        if self._has_ended:
            return
        try:
            if frozen:
                self._stop()
            else:
                self._go_on()
            self._must_thaw = False
        except OSError:
            self._must_thaw = not frozen

    def _stop(self) -> None:
        """What is moved into a frozen group stops; where there is none, by signals."""
        if not self._guard:
            found = 0
        elif self._group.freeze(True):
            self._is_held = True
            found = for_all(self._guard, signal.SIGSTOP, self._group.hold)
        else:
            found = signal_all(self._guard, signal.SIGSTOP)
        if not found or self.line.last is not self:  # what runs here has not begun, or had not
            self.line.ask()

    def _go_on(self) -> None:
        """By both means, for either may have stopped some of it. OSError where it may still stand."""
        is_thawed = self._group.freeze(False)
        if self._guard:
            signal_all(self._guard, signal.SIGCONT)
        if not is_thawed and self._group.is_told_to_freeze():
            raise OSError("its control group is still frozen")

    def _measure(self) -> Usage:
        if sys.platform != "linux":
            return usage_of(self._guard, with_itself=False)
        guard = processes.look(self._guard)
        if guard is None:
            return Usage()
        tree = tree_of(guard.pid)
        if self._yields:
            self._keep_low(tree)
        number = self._group.processes()
        number = sum(process.threads for process in tree) if number is None else number
        hit = control_groups.breach(self._hits, self._group.hits())
        return Usage(self._used.cpu_s(guard, tree), self._memory_bytes(tree), number, hit)

    def _memory_bytes(self, tree: list[processes.Process]) -> int:
        in_group = self._group.memory_bytes()
        if in_group is not None:
            return in_group
        used_bytes, limit_bytes = sum(process.memory_bytes for process in tree), self._limits.memory_bytes
        if limit_bytes is not None and used_bytes > limit_bytes:  # much of it may be shared
            return sum(processes.own_memory_bytes(process.pid) for process in tree)
        return used_bytes

    def _keep_low(self, tree: list[processes.Process]) -> None:
        """Lower the sessions that the task opened for itself."""
        for process in tree:
            is_low = process.session == self.line.session or process.session in self._low_sessions
            if not is_low and priority.lower_session(process.pid):
                self._low_sessions.add(process.session)


def _ended(news: dict[str, Any]) -> Ended:
    """A guard's last word on a task."""
    if "errno" not in news:
        if "breach" in news:
            news["breach"] = Breach(news["breach"])
        return Ended(**news)
    number, reason, is_left = news["errno"], news["reason"], news["folder_is_left"]
    if number in _OUR_MISTAKES:
        return Ended(trouble=f"cannot start a task: {reason}", folder_is_left=is_left)
    return Ended(exit_code=127 if number == errno.ENOENT else 126, refusal=reason, folder_is_left=is_left)
