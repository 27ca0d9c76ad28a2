"""The first process of a cell (pid 1 of its process namespace): it starts the tasks of a slot one after the other.

``walls/cell.py`` starts it in bubblewrap, for the supervisor. That has it start one task, and then serve the agent
(``deputy.py``); or start one after the other, where tasks have a user of their own. It sees what all tasks of the
slot see of the computer, and the folders of all attempts; each task sees its own of those, and has a /tmp, a
/dev/shm and System V's shared memory of its own (``namespaces.py``). What is left of a task is killed by a single
call, and all of it by the kernel where this process ends.

A task cannot trace or kill it: the kernel protects a process that has more powers, and the first of a namespace. Nor
can it change what that hands on, such as limits of resources (``first_process_filter.py``). Where the kernel has no
such filter, the cell is given up after a task that did.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import time

from loopline_worker.supervisor import processes
from loopline_worker.supervisor.orders import TaskOrder, Unpacker, pack
from loopline_worker.supervisor.selector import Selector
from loopline_worker.supervisor.task_processes import TaskProcesses
from loopline_worker.supervisor.users import credentials
from loopline_worker.supervisor.walls import first_process_filter, namespaces
from loopline_worker.supervisor.walls.deputy import Deputy, handed_on
from loopline_worker.supervisor.walls.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from loopline_worker.supervisor.walls.deputy import Errand

FILES = 16
"""More than there ever are with a message."""
KILL, CONFIRM = "kill", "confirm"


def main(connection: int) -> None:
    """Serve a supervisor until it hangs up, as the first process that bubblewrap starts."""
    _serve(connection, namespaces.become_first)


def enclose(connection: int, said: int) -> None:
    """Serve a supervisor as the first process of a process namespace made here, where Landlock has the files.

    ``said`` receives the id of that process, in bubblewrap's format.
    """
    first = _enclosed()
    if first:
        os.write(said, b'{"child-pid": %d}' % first)
        os.close(said)
        os.close(connection)
        os.waitpid(first, 0)
        return
    os.close(said)
    _serve(connection, namespaces.mount_processes)


def _enclosed() -> int:
    """Fork the first process of a namespace, which ends with this one, and this one with its parent."""
    namespaces.become_first(with_processes=True)
    credentials.end_with_parent(signal.SIGKILL)
    first = os.fork()
    if not first:
        credentials.end_with_parent(signal.SIGKILL)
    return first


def _serve(connection: int, begin: Callable[[], None]) -> None:
    supervisor = socket.socket(fileno=connection)
    supervisor.set_inheritable(False)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    try:
        begin()
    except OSError as error:
        supervisor.sendall(pack({"trouble": str(error)}))
        return
    is_protected = first_process_filter.install()
    supervisor.sendall(pack({"own_bytes": _own_bytes()}))
    CellInit(supervisor, is_protected=is_protected).run()


def probe_enclosed() -> None:
    """Raise OSError, or exit with a code, unless ``enclose`` works here."""
    first = _enclosed()
    if first:
        raise SystemExit(os.waitpid(first, 0)[1] >> 8)
    namespaces.mount_processes()


def probe(room: str) -> None:
    """Raise OSError unless a cell can be had here; ``room``: any folder that is seen."""
    namespaces.become_first()
    namespaces.enter(room, "", 2**20, [], has_network=True, root="")


class CellInit:
    """Runs the orders of a supervisor."""

    def __init__(self, supervisor: socket.socket, *, is_protected: bool) -> None:
        """``is_protected``: no task can change what this process hands on to the next."""
        self._supervisor, self._is_protected = supervisor, is_protected
        self._selector = Selector(supervisor.fileno())
        self._processes = TaskProcesses(self._selector)
        self._view = View()
        self._unpacker = Unpacker()
        self._files: list[int] = []
        self._is_killed = False  # the task is to be killed
        self._is_over = False
        self._cpu_s = time.process_time()  # until the last task ended

    def run(self) -> None:
        """Serve until the supervisor hangs up, or a task has changed what is handed on to the next."""
        before = None if self._is_protected else handed_on()
        while not self._is_over:
            message = self._unpacker.next()
            if message is None:
                self._receive()
            elif isinstance(message, dict):
                if not self._deputize(message["cell"], message["errand"], before):
                    return
            elif not isinstance(message, str) and not self._serve(TaskOrder.from_tuple(message), before):
                return

    def _serve(self, order: TaskOrder, before: object) -> bool:
        """Run a task. True if the next one may be run here, too."""
        self._is_killed = False
        files, self._files = self._files, []
        failure = self._start(order, files)
        for file in files:
            os.close(file)
        if failure:
            self._send({"failure": failure})
            return True
        self._handle_requests()  # files that came with the order
        while not self._processes.has_ended and not self._is_killed:
            if self._supervisor.fileno() in self._selector.wait():
                self._receive()
                self._handle_requests()
            if self._selector.child_ended:
                self._processes.reap()
        end = self._processes.end(self._is_killed)
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        end.overhead_s = self._cpu_s - before_s
        is_same = before is None or handed_on() == before
        self._send({"end": end.to_tuple(), "is_spent": not is_same})
        return is_same

    def _start(self, order: TaskOrder, files: list[int]) -> dict[str, object]:
        """Start the task. Return why it could not be: its own fault, or else trouble; empty: it runs."""
        try:
            self._view.show_to(order)
        except OSError as error:
            return {"trouble": f"no sandbox: {error}"}
        try:
            self._processes.start(order, *files)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return {"errno": getattr(error, "errno", errno.EINVAL), "reason": reason}
        return {}

    def _handle_requests(self) -> None:
        """Do what is asked for the task that runs."""
        while request := self._unpacker.next():
            if request == CONFIRM:
                self._send({"runs": True})
            self._is_killed = self._is_killed or request == KILL
        self._is_killed = self._is_killed or self._is_over

    def _deputize(self, cell: int, errand: Errand, before: object) -> bool:
        """Serve the agent in place of the supervisor for a while. True if the next task may be run here, too."""
        files, self._files = self._files, []
        self._selector.unwatch(self._supervisor.fileno())
        deputy = Deputy(cell, errand, files, self._processes, self._view)
        state, is_same, left = deputy.run(self._supervisor, before)
        socket.send_fds(self._supervisor, [pack({"back": (state, is_same)})], left)
        for file in left:
            os.close(file)
        self._selector.watch(self._supervisor.fileno())
        self._cpu_s = time.process_time()
        return is_same

    def _receive(self) -> None:
        part, files, _, _ = socket.recv_fds(self._supervisor, 65536, FILES)
        for file in files:
            os.set_inheritable(file, False)
        self._files += files
        self._unpacker.feed(part)
        self._is_over = self._is_over or not part

    def _send(self, message: dict[str, object]) -> None:
        self._supervisor.sendall(pack(message))


def _own_bytes() -> int:
    """Return the memory that no other process has, and that counts for the tasks' control group."""
    for line in processes.read("/proc/self/smaps_rollup").splitlines():
        if line.startswith(b"Anonymous:"):
            return int(line.split()[1]) * 1024
    return 0
