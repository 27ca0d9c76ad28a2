"""The cell of a slot, as its supervisor has it: bubblewrap's namespaces, made once for many tasks.

Making them takes longer than a short task. A process in them (``cell_init.py``) starts the tasks and gives each fresh
folders. It ends with the supervisor, and all tasks with it: bubblewrap has the kernel see to both.
"""

from __future__ import annotations

import _thread
import errno
import os
import signal
import socket
from contextlib import suppress

from loopline_worker.supervisor.orders import Unpacker, pack
from loopline_worker.supervisor.spawn import apart
from loopline_worker.supervisor.task_processes import TreeEnd
from loopline_worker.supervisor.users import credentials
from loopline_worker.supervisor.walls.cell_command import words_of
from loopline_worker.supervisor.walls.cell_init import CONFIRM, FILES, KILL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from loopline_worker.supervisor.order_server import State
    from loopline_worker.supervisor.orders import Needs, TaskOrder
    from loopline_worker.supervisor.users.credentials import TaskUser
    from loopline_worker.supervisor.walls.deputy import Errand

_PART_BYTES = 65536
_WRAPPER_BYTES = 2**19
_LOOK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)


class Cell:
    """Runs the tasks of one slot in a sandbox, which it makes with the first and whenever another is asked for."""

    def __init__(self, user: TaskUser | None = None) -> None:
        """``user``: whose the cell and all in it is; None: the user of this process."""
        self._user = user
        self._starter: _thread.LockType | None = None  # until its release the thread stays that started bubblewrap
        self._number = 0  # of the walls that are up
        self._has_gpus = False  # its tasks have
        self._wrapper = 0  # process id
        self._socket: socket.socket | None = None
        self._unpacker = Unpacker()
        self._end: TreeEnd | None = None
        self.root = 0  # process id of the first process, as it is outside
        self.own_bytes = 0

    @property
    def file(self) -> int:
        """The file that is readable when ``read`` has something to read."""
        assert self._socket
        return self._socket.fileno()

    @property
    def has_ended(self) -> bool:
        """True once nothing of the task is left."""
        return self._end is not None

    @property
    def is_up(self) -> bool:
        """True unless it has been closed, or has not been made."""
        return self._socket is not None

    def is_for(self, order: TaskOrder) -> bool:
        """True if the order's cell exists and its processes live."""
        if not self._socket or self._number != order.cell:
            return False
        try:
            return bool(self._socket.recv(1, _LOOK))
        except BlockingIOError:  # it has nothing to say
            return True
        except OSError:
            return False

    def make(self, number: int, walls: list[str], *, has_gpus: bool = False) -> None:
        """Put up walls in place of others. Raises OSError with bubblewrap's words if it cannot be.

        ``walls``: the program and its options. ``has_gpus``: its tasks have GPUs.
        """
        self.close()
        self._has_gpus = has_gpus
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._socket, self._unpacker = ours, Unpacker()
                self._start(walls, theirs.fileno())
            hello = self._next()
            if "trouble" in hello:
                raise OSError(errno.EPERM, f"no sandbox: {hello['trouble']}")
        except OSError:
            self.close()
            raise
        self.own_bytes = hello["own_bytes"] + _WRAPPER_BYTES
        self._number = number

    def start(self, order: TaskOrder, stdout: int, stderr: int) -> None:
        """Have a task started. If it cannot be run, that is its end."""
        self._end = None
        try:
            self._send(pack(order.to_tuple()), stdout, stderr)
        except OSError:
            self._lose()

    def deputize(self, errand: Errand, files: list[int]) -> None:
        """Have the first process serve the agent: ``files`` are the connection, the claims and more.

        Raises OSError if it has ended before that.
        """
        self._send(pack({"cell": self._number, "errand": errand}), *files)

    def await_return(self, provide: Callable[[Needs], None]) -> tuple[State, bool, list[int]]:
        """Wait until it gives the agent back: the state, whether it may go on, and the files of the order to come.

        ``provide`` is called with the needs of each task. Raises OSError if the sandbox has ended.
        """
        assert self._socket
        files: list[int] = []
        while (message := self._unpacker.next()) is None or "needs" in message:
            if message:
                try:
                    provide(message["needs"])
                    trouble = ""
                except OSError as error:
                    trouble = str(error)
                self._send(pack({"trouble": trouble}))
                continue
            part, came, _, _ = socket.recv_fds(self._socket, _PART_BYTES, FILES)
            for file in came:
                os.set_inheritable(file, False)
            files += came
            if not part:
                raise OSError(errno.EPIPE, "its sandbox has ended")
            self._unpacker.feed(part)
        return *message["back"], files

    def confirm(self) -> bool:
        """Ask whether the task runs: ``read`` returns True when it does. False: that is to come."""
        with suppress(OSError):  # its end is noticed by ``read``
            self._send(pack(CONFIRM))
        return False

    def read(self) -> bool:
        """Read a message: whether the task has ended. True if it is that the task runs."""
        try:
            return self._note(self._next())
        except OSError:
            self._lose()
        return False

    def end(self, killed: bool) -> TreeEnd:
        """Return how the task ended; kill it if it has not."""
        if killed and not self._end:
            with suppress(OSError):
                self._send(pack(KILL))
        while not self._end:
            self.read()
        return self._end

    def close(self) -> None:
        """Kill all its processes. Return when the kernel reports that none is left."""
        if self._socket:
            self._socket.close()
        if self._wrapper:
            for pid in (self.root, self._wrapper):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                while True:  # the first process, too, if its parent did not
                    os.waitpid(-1, 0)
        if self._starter:
            self._starter.release()
            self._starter = None
        self._socket, self._wrapper, self.root, self._number = None, 0, 0, 0

    def _start(self, walls: list[str], connection: int) -> None:
        """Start bubblewrap and find the first process in it. Options are in a file: a command line can be read."""
        program, *options = walls
        files = [os.memfd_create("options"), os.memfd_create("said"), *os.pipe()]
        try:
            os.write(files[0], b"".join(os.fsencode(option) + b"\0" for option in options))
            os.lseek(files[0], 0, os.SEEK_SET)
            passed = [(os.POSIX_SPAWN_DUP2, file, file) for file in (files[0], files[3], connection)]
            if program:
                command = [program, "--args", str(files[0]), "--info-fd", str(files[3]), "--"]
                command += words_of("main", str(connection))
            else:
                command = words_of("enclose", str(connection), str(files[3]))
            self._wrapper = self._spawn(command, [*passed, (os.POSIX_SPAWN_DUP2, files[1], 2)])
            os.close(files.pop())
            told = b""
            while part := os.read(files[2], 4096):
                told += part
            if b'"child-pid":' not in told:
                raise OSError(
                    errno.EPERM, f"no sandbox: {os.pread(files[1], 1000, 0).decode(errors='replace').strip()}"
                )
            self.root = int(told.partition(b'"child-pid":')[2].split(b",")[0].split(b"}")[0])
        finally:
            for file in files:
                os.close(file)

    def _spawn(self, command: list[str], actions: list[tuple[int, int, int]]) -> int:
        """Start bubblewrap as the cell's user. It dies with the thread that has started it."""

        def start() -> int:
            if self._user:
                credentials.become(self._user, has_gpus=self._has_gpus)
            return os.posix_spawn(command[0], command, {}, file_actions=actions, setpgroup=0)

        if not self._user:
            return start()
        self._starter = _thread.allocate_lock()
        self._starter.acquire()
        return apart(start, self._starter)

    def _send(self, data: bytes, *files: int) -> None:
        assert self._socket
        sent = socket.send_fds(self._socket, [data], files)
        self._socket.sendall(data[sent:])

    def _lose(self) -> None:
        """All of the sandbox has ended, and the task with it."""
        self.close()
        self._end = TreeEnd(signal.SIGKILL)
        self._end.is_lost = True

    def _note(self, message: dict[str, Any]) -> bool:
        if "runs" in message:
            return True
        self._end = TreeEnd(*message.get("end", [0]))
        self._end.failure = message.get("failure", {})
        if message.get("is_spent"):
            self.close()
        return False

    def _next(self) -> dict[str, Any]:
        """Return the next message. Raises OSError if the sandbox has ended."""
        assert self._socket
        while (message := self._unpacker.next()) is None:
            part = self._socket.recv(_PART_BYTES)
            if not part:
                raise OSError(errno.EPIPE, "its sandbox has ended")
            self._unpacker.feed(part)
        found: dict[str, Any] = message
        return found
