"""The view of a cell's tasks: their files, shared memory and network, kept until a task leaves a trace in them.

Making these namespaces takes as long as a short task. So the first process of a cell moves into them, and starts one
task after another from there. Between two tasks no other process runs in them: the folder of the next attempt is
mounted in place of the previous one's. After a task that left anything in memory, or used a loopback of its
own (closed connections stay visible for a minute, IPv6 flow labels for seconds, and counters for good), the next task
has a new view. No process returns from such a
loopback to the computer's network, so that tasks without a network have cells of their own.
"""

from __future__ import annotations

import os
from contextlib import suppress

from loopline_worker.supervisor.walls import namespaces
from loopline_worker.supervisor.walls.inotify import FolderWatcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loopline_worker.supervisor.orders import TaskOrder
    from loopline_worker.supervisor.walls.namespaces import Places

_TABLES = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg")
"""System V's segments, semaphores and queues of a namespace, each a line below a head."""
_TRAFFIC = tuple(f"/proc/self/net/{name}" for name in ("dev", "snmp", "snmp6", "netstat", "ip6_flowlabel"))
"""Counters of a network namespace, and its IPv6 flow labels. Not all kernels have the files about IPv6."""


class View:
    """Changes what the calling process sees, which has one thread and has become the first of a cell."""

    def __init__(self) -> None:
        self._of_cell = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        self._kind: tuple[object, ...] | None = None  # places that tasks of the present view have in common
        self._room = ""  # of the last task
        self._around = -1  # the folder with all rooms, as the cell has it
        self._points = -1  # the folder that the view has in its place
        self._watcher = FolderWatcher()
        self._is_watched = False
        self._tables: list[int] = []
        self._queues = -1
        self._without_queues = 0, 0
        self._traffic: list[tuple[int, bytes]] = []  # open files about a loopback of its own, as they were at first

    def show_to(self, order: TaskOrder) -> None:
        """See what a task is to see, or have it started by a thread that does; be in its folder. Raises OSError."""
        if order.places and can_hold(order.places):
            self.show(order.places)
            order.places = None
        elif order.places:
            self.leave()
            return
        os.chdir(order.folder)

    def open_around(self, folder: str) -> int:
        """Open the folder around a room, as the cell has it. Raises OSError."""
        if self._kind and self._kind[0] == os.path.dirname(folder):  # noqa: PTH120 - pathlib is not light
            return os.dup(self._around)  # its path is hidden
        self.leave()
        return namespaces.open_around(folder)

    def show(self, places: Places) -> None:
        """See what the next task is to see. Raises OSError."""
        room, temporary, memory_bytes, kept, has_network, _ = places
        kind = room[: room.rindex("/")], bool(temporary), memory_bytes, kept, has_network
        if kind == self._kind and self._is_untouched():
            self._kind = None  # until all is done
            namespaces.exchange(self._around, self._points, self._room, room, temporary)
        else:
            self.leave()
            self._make(places)
        self._kind, self._room = kind, room

    def leave(self) -> None:
        """See what the cell sees, for a task that needs more than files and memory of its own. Raises OSError."""
        self._kind = None
        self._watcher.close()
        for file in (self._around, self._points, self._queues, *self._tables, *(file for file, _ in self._traffic)):
            with suppress(OSError):
                os.close(file)
        self._around, self._points, self._queues, self._tables, self._traffic = -1, -1, -1, [], []
        namespaces.return_to(self._of_cell)

    def _make(self, places: Places) -> None:
        room, temporary, _, kept, has_network, _ = places
        namespaces.part(has_network=has_network)
        if not has_network:
            for path in _TRAFFIC:
                with suppress(FileNotFoundError):
                    file = os.open(path, os.O_RDONLY)
                    self._traffic.append((file, _whole(file)))
        self._around = namespaces.open_around(room)
        self._tables = [os.open(table, os.O_RDONLY) for table in _TABLES]
        self._queues = namespaces.open_queues()
        self._without_queues = _content(self._queues)
        self._points = namespaces.mount_own(self._around, *places[:4])
        self._is_watched = self._watcher.watch(*namespaces.in_memory(room, temporary, kept))

    def _is_untouched(self) -> bool:
        """True if no task has left anything, or has changed anything, since the view was made."""
        if not self._is_watched or not self._watcher.saw_nothing() or _content(self._queues) != self._without_queues:
            return False
        for table in self._tables:
            if os.pread(table, 4096, 0).count(b"\n") > 1:
                return False
        return all(_whole(file) == at_first for file, at_first in self._traffic)


def _whole(file: int) -> bytes:
    """Read an open file of /proc from its beginning to its end."""
    text = b""
    while more := os.pread(file, 2**16, len(text)):
        text += more
    return text


def _content(queues: int) -> tuple[int, int]:
    """Return what the kernel changes of a folder of message queues with each that is made or removed."""
    status = os.fstat(queues)
    return status.st_size, status.st_mtime_ns


def can_hold(places: Places) -> bool:
    """True unless the task has the files of an image."""
    return not places[-1]
