"""Read leases on files of a task that has a user of its own: only the owner of a file may take one (fcntl(2)).

A process of that user takes them for the agent, which sends it the open files. A lease belongs to the open file, so
the agent sees whether it still holds. The process releases all as soon as a program of the task waits to write to one
of them, and ends when the agent hangs up.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
from contextlib import suppress

from loopline_worker.supervisor.users import credentials

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from loopline_worker.supervisor.users.credentials import TaskUser

MOST = 64
"""Files in one message."""
_SET_SIGNAL = 10  # F_SETSIG, which Python does not name


def start(user: TaskUser, connection: int) -> int:
    """Start the process with its end of the connection. Return its process id. Raises OSError."""
    child = os.fork()
    if child:
        return child
    try:
        kept = os.dup2(connection, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        _raise_limit()
        credentials.become(user)
        _serve(socket.socket(fileno=kept))
    finally:
        os._exit(0)


def _raise_limit() -> None:
    """Allow as many open files as possible: the agent has a higher limit than the zygote, whose child this is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _serve(agent: socket.socket) -> None:
    """Lease files until the agent hangs up."""
    leased: list[int] = []
    signal.signal(signal.SIGURG, lambda *_: _release(leased))
    while True:
        ask, files, _, _ = socket.recv_fds(agent, 1, MOST)
        if not ask:
            return
        leased += files
        for file in files:
            with suppress(OSError):  # the agent sees that there is no lease
                fcntl.fcntl(file, fcntl.F_SETOWN, os.getpid())
                fcntl.fcntl(file, _SET_SIGNAL, signal.SIGURG)
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        agent.send(ask)


def _release(leased: list[int]) -> None:
    for file in leased:
        with suppress(OSError):
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
