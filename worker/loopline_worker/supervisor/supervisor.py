"""The guard of one slot: starts task after task, and sees to it that nothing of a task outlives it.

It speaks with the agent over its own connection. In: orders, each a task with a number, perhaps with two open files
for it to write to; then, for one of them, ``kill``, ``follow`` (pass on what it writes as it comes) and ``ask`` (say
so when it runs). After an order comes its ticket (see ``claims.py``): once that is drawn, it begins. Where several
are lined up, the next begins the moment that nothing is left of the last. Hanging up, or dying, is the agent's order
to kill and to go.

Out: ``guard`` at first, who it is; ``runs`` where it was asked; what the task writes, as ``stdout`` and ``stderr``;
and when nothing of the task is left, how it went, with what it wrote last. A task that could not be started ends with
``errno`` and ``reason``, or with ``trouble``. News of an end waits a moment for the next one, where one is under way.

What a task inherits is set once, in the guard: the lowest priority, the control groups (see ``spawn.py``).
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from contextlib import suppress

from loopline_worker.supervisor import priority, processes, subreaper
from loopline_worker.supervisor.claims import draw
from loopline_worker.supervisor.control_groups import Group, breach, name_of
from loopline_worker.supervisor.framing import Unpacker, pack
from loopline_worker.supervisor.orders import Breach, TaskOrder
from loopline_worker.supervisor.pump import Relay
from loopline_worker.supervisor.scratch_folders import Folders
from loopline_worker.supervisor.selector import Wakeup
from loopline_worker.supervisor.spawn import dump_no_core, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loopline_worker.supervisor.control_groups import Places

FILES = 2
_RETRY_S = 0.02
_KEEP_FOLDER_S = 0.05
_QUIET_S = 0.003
"""What a task writes in the beginning waits in its pipe: many have ended by then, and all is read at once."""
_NEWS_WAIT_S = 0.008
"""So long, and for as long as tasks are short, the agent need not know of an end: it hears of several at once."""
_DEAD = "ZX"
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Guard:
    def __init__(self, connection: int, tickets: int, yields: bool, places: Places) -> None:
        self._agent = socket.socket(fileno=connection)
        self._connection = connection
        self._tickets = tickets
        self._yields = yields
        self._group = Group(places, name_of(os.getpid()))
        self._wakeup = Wakeup(connection)
        self._folders = Folders()
        self._heard = Unpacker()
        self._orders: dict[int, TaskOrder] = {}
        self._files: list[int] = []  # that came with the order
        self._asked = 0  # of which order it is to be said that it runs
        self._followed = 0  # of which order it is wanted at once what it writes
        self._doomed = 0  # which order is to end
        self._unsaid = b""
        self._unsaid_since = 0.0
        self._is_over = False  # the agent hung up
        self._is_spent = False
        self._hits = 0, 0
        self._peril = priority.Peril()
        self._cpu_s = time.process_time()  # until the last task ended
        self._forget()

    def run(self) -> None:
        subreaper.adopt_orphans()
        try:
            self._settle()
        except OSError as error:
            self._say({"trouble": f"cannot start a process: {error.strerror}"})
            return
        self._say({"guard": os.getpid(), "session": os.getsid(0)})
        while order := self._next_order():
            self._serve(order)
            self._forget()
        self._folders.clear()

    def _settle(self) -> None:
        """Become what every task is to be."""
        dump_no_core()
        if self._yields:
            priority.yield_to_owner()
        self._group.make()
        self._group.enter()

    def _forget(self) -> None:
        """There is no task."""
        self._number = 0
        self._task = 0
        self._status: int | None = None  # of the task, once it ended
        self._has_children = True
        self._killed = False
        self._strays = 0
        self._user_s = self._system_s = 0.0
        self._peak_memory = 0
        self._relay = Relay(self._wakeup, self._pass_on)

    def _serve(self, order: TaskOrder) -> None:
        began_s = time.monotonic()
        end = self._start(order)
        if not end:
            self._watch()
            end = {"elapsed_s": time.monotonic() - began_s}
            self._clear(is_walled=bool(order.sandbox))
            self._account(end)
        end["folder_is_left"] = not (order.makes_folder and self._folders.take_back(order.folder))
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        end["overhead_s"] = self._cpu_s - before_s
        self._tell_of_end(*self._relay.close(), end)

    # The task.

    def _start(self, order: TaskOrder) -> dict[str, object]:
        """Empty, or why it could not be."""
        given, self._files = self._files, []
        try:
            if order.makes_folder:
                self._folders.make(order.folder)
            os.chdir(order.folder)
            files = given or self._relay.open()
            self._group.limit(order.memory_bytes, order.processes)
        except OSError as error:
            _close(given)
            return {"trouble": f"cannot run a task here: {error}"}
        try:
            with self._peril:
                self._task = spawn(order, *files)
        except (OSError, ValueError) as error:
            return {"errno": getattr(error, "errno", errno.EINVAL), "reason": _reason(error)}
        finally:
            _close(given)
        return {}

    def _watch(self) -> None:
        """Until the task ended or has to. It may be killed by the agent's own hand, which has said so just before."""
        self._answer()
        quiet_until, is_quiet = time.monotonic() + _QUIET_S, True
        while self._status is None and not self._killed:
            ready = self._wakeup.wait(max(0.0, quiet_until - time.monotonic()) if is_quiet else None)
            if is_quiet and time.monotonic() >= quiet_until:
                is_quiet = False
                self._relay.watch()
                self._say_all()
            if self._connection in ready:
                self._hear()
            self._relay.read(ready)
            if self._wakeup.has_rung:
                self._reap()

    def _clear(self, is_walled: bool) -> None:
        """Kill all that there is of the task, until the kernel says that we have no children left.

        A killed process can fork no more, and its children become ours: every round leaves fewer.
        """
        if not self._has_children:
            return
        if not self._killed:
            with suppress(OSError):
                self._strays = self._count_strays(is_walled)
        with suppress(OSError):
            os.killpg(self._task, signal.SIGKILL)  # at one stroke; off Linux, all that can be found
        while self._reap():
            with suppress(OSError):  # no file descriptor left: soon again
                for pid in processes.descendants(os.getpid()):
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            self._wakeup.pause(_RETRY_S)

    def _count_strays(self, is_walled: bool) -> int:
        """What the task has left running; not the first process of its sandbox, below which all of it is."""
        first = set(processes.children(os.getpid())) if is_walled else set()
        found = (processes.look(pid) for pid in processes.descendants(os.getpid()) if pid not in first)
        return sum(process is not None and process.state not in _DEAD for process in found)

    def _reap(self) -> bool:
        """Take leave of every child that ended; False when none is left."""
        self._has_children = True
        try:
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._task:
                    self._status = status
                self._user_s += used.ru_utime
                self._system_s += used.ru_stime
                self._peak_memory = max(self._peak_memory, used.ru_maxrss)
        except ChildProcessError:
            self._has_children = False
        return self._has_children

    def _account(self, end: dict[str, object]) -> None:
        assert self._status is not None
        end |= {
            "exit_code": os.waitstatus_to_exitcode(self._status),
            "cpu_s": self._user_s + self._system_s,
            "system_s": self._system_s,
            "peak_memory_bytes": self._peak_memory * _MAXRSS_UNIT,  # of the largest process
        }
        if self._killed:
            end["killed"] = True
        if self._strays:
            end["strays"] = self._strays
        self._note_breach(self._status, end)
        with suppress(OSError):  # no file descriptor left
            if self._group.is_spent():
                end["is_spent"] = self._is_spent = True  # the next task is another guard's

    def _note_breach(self, status: int, end: dict[str, object]) -> None:
        """The limit that a task hit which did not end well, and how often limits were hit, where that is news."""
        before = self._hits
        with suppress(OSError):  # no file descriptor left
            self._hits = self._group.hits()
        if before != self._hits:
            end["hits"] = self._hits
        if not status:
            return
        hit = breach(before, self._hits)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ:
            hit = Breach.SCRATCH
        if hit:
            end["breach"] = hit.value

    # The agent.

    def _next_order(self) -> TaskOrder | None:
        """The next that may begin; None where there will be none any more: the agent hung up.

        If it did so just now, that is heard as soon as the task has begun, which ends it.
        """
        while not self._is_over:
            if not self._is_spent and (order := self._draw()):
                return order
            self._await_orders()
        return None

    def _await_orders(self) -> None:
        """Until there is something to do, or to hear."""
        if not self._is_spent:
            self._wakeup.watch(self._tickets)
        ready = self._wakeup.wait(self._pause_s())
        if not self._is_spent:
            self._wakeup.forget(self._tickets)
        if self._connection in ready:
            self._hear()
        elif not ready and not self._wakeup.has_rung:
            self._rest()

    def _pause_s(self) -> float | None:
        if self._unsaid:
            return 0.0
        return _KEEP_FOLDER_S if self._folders.has_spare else None

    def _rest(self) -> None:
        """There is nothing to do."""
        if self._unsaid:
            self._say_all()
        else:
            self._folders.clear()

    def _draw(self) -> TaskOrder | None:
        """None where the agent has just taken it back."""
        self._number = number = draw(self._tickets)
        while number and number not in self._orders and not self._is_over:
            if self._wakeup.has(self._connection):
                self._hear()
            else:  # it will not come, and waiting for it would be deaf to all else
                self._say({"trouble": f"order {number} was to begin and is not there", "is_spent": True})
                self._is_over = True
        order = self._orders.get(number)
        self._orders = {later: order for later, order in self._orders.items() if later > number}
        return order

    def _hear(self) -> None:
        part = b""
        with suppress(OSError):
            part, files, _, _ = socket.recv_fds(self._agent, 65536, FILES)
            for file in files:
                os.set_inheritable(file, False)
            self._files += files
        self._heard.feed(part)
        if not part:
            self._is_over = self._killed = True
        while (message := self._heard.next()) is not None:
            number, said = message
            if isinstance(said, str):
                self._heed(number, said)
            else:
                self._orders[number] = TaskOrder.from_tuple(said)

    def _heed(self, number: int, word: str) -> None:
        if word == "kill":
            self._doomed = number
        elif word == "ask":
            self._asked = number
        elif word == "follow":
            self._followed = number
        if self._task:
            self._answer()

    def _answer(self) -> None:
        """Do what the agent asked for, once the task runs; what it asked for of earlier ones is past."""
        if self._doomed == self._number:
            self._killed = self._status is None
        if self._asked == self._number:
            self._asked = 0
            self._say({"runs": True})
        if self._followed == self._number:
            self._followed = 0
            self._relay.follow()

    def _tell_of_end(self, stdout: bytes, stderr: bytes, end: dict[str, object]) -> None:
        """At once, or with the next one's, where that has a moment yet."""
        now = time.monotonic()
        if not self._unsaid:
            self._unsaid_since = now
        self._unsaid += pack(_with_output(stdout, stderr, end))
        if now >= self._unsaid_since + _NEWS_WAIT_S:
            self._say_all()

    def _pass_on(self, stdout: bytes, stderr: bytes) -> None:
        self._say(_with_output(stdout, stderr, {}))

    def _say(self, message: dict[str, object]) -> None:
        self._unsaid += pack(message)
        self._say_all()

    def _say_all(self) -> None:
        unsaid, self._unsaid = self._unsaid, b""
        if unsaid:
            with suppress(OSError):  # the agent is gone: nobody to tell
                self._agent.sendall(unsaid)


def _with_output(stdout: bytes, stderr: bytes, news: dict[str, object]) -> dict[str, object]:
    if stdout:
        news["stdout"] = stdout
    if stderr:
        news["stderr"] = stderr
    return news


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
