"""Requests of the agent to the zygote: both ends of their connection.

A request is one byte, the size of its body, the body, which is words divided by zeros, and up to two open files.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import lru_cache

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from collections.abc import Sequence

    from loopline_worker.supervisor.control_groups import Places

VARIABLE = "LOOPLINE_ZYGOTE"
"""Where a service names the agent's end of the connection: its file's number."""
FILES = 2
"""Number of files in a request for a supervisor, and with an order whose task has files of its own to write to."""
CONFIGURE, FORK, SIGNAL, HAND_OVER, MEASURE, LEASE, ENERGY = b"o", b"+", b"s", b"h", b"m", b"l", b"e"
_HEAD_BYTES = 5
_MOST_BYTES = 2**16
_MOST_SIGNALLED = 5000
"""Processes named in one request."""


class ZygoteLine:
    """The agent's end. Its methods raise OSError if the zygote is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    @property
    def is_closed(self) -> bool:
        """True once the agent has hung up."""
        return self.connection.fileno() < 0

    def configure(self, yields: bool, isolates: bool, places: Places) -> None:
        """Say how supervisors are to be; before the first is asked for."""
        self._send(
            CONFIGURE, str(int(yields)), str(int(isolates)), *(f"{use}={place}" for use, place in places.items())
        )

    def fork(self, connection: int, claims: int) -> None:
        """Have a supervisor forked with its end of the connection to the agent, and its claim tokens."""
        self._send(FORK, files=(connection, claims))

    def signal(self, root: int, signum: int, only: Sequence[int] = ()) -> None:
        """Have all processes below a supervisor, or below the first process of its cell, signalled.

        ``only``: just these of them; empty: all.
        """
        for start in range(0, max(1, len(only)), _MOST_SIGNALLED):
            portion = only[start : start + _MOST_SIGNALLED]
            self._send(SIGNAL, str(root), str(int(signum)), *map(str, portion))

    def lessor(self, folder: str) -> socket.socket:
        """Return the connection to a process that leases files of a task as its user (users/leases.py).

        It is closed at once if there is no such user.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._send(LEASE, folder, files=(theirs.fileno(),))
        return ours

    def hand_over(self, folder: str) -> None:
        """Wait until the agent may read and remove what tasks' users have left in a folder and in those below.

        It may be called in any thread.
        """
        self._ask(HAND_OVER, folder)

    def used_bytes(self, folder: str) -> int:
        """Wait until the user of a task has measured what its folder takes of the disk, and return that; 0: unknown.

        An empty file takes 4 KiB. It may be called in any thread.
        """
        words = self._ask(MEASURE, folder).split()  # bytes, and number of files, each before the folder's name
        return max(int(words[0]), 4096 * int(words[2])) if len(words) == 4 else 0

    def package_counters(self) -> str:
        """Wait for the lines of users/package_counters.py; empty if this computer has no such counters."""
        return self._ask(ENERGY, "").decode()

    def _ask(self, kind: bytes, word: str) -> bytes:
        """Send a request with a pipe. Return everything written to the pipe, once it is closed."""
        answer, theirs = os.pipe()
        try:
            try:
                self._send(kind, word, files=(theirs,))
            finally:
                os.close(theirs)
            said = b""
            while part := os.read(answer, _MOST_BYTES):
                said += part
            return said
        finally:
            os.close(answer)

    def _send(self, kind: bytes, *words: str, files: Sequence[int] = ()) -> None:
        content = os.fsencode("\0".join(words))
        socket.send_fds(self.connection, [kind + len(content).to_bytes(_HEAD_BYTES - 1, "big") + content], files)


def receive(agent: socket.socket) -> tuple[bytes, list[str], list[int]] | None:
    """Return the next request: its kind, its words and its files, fewer if descriptors are short; None at the end."""
    try:
        head, files, _, _ = socket.recv_fds(agent, _HEAD_BYTES, FILES)
        for file in files:
            os.set_inheritable(file, False)
        head += _rest(agent, _HEAD_BYTES - len(head)) if head else b""
        size = int.from_bytes(head[1:], "big")
        if len(head) < _HEAD_BYTES or size > _MOST_BYTES:
            return None
        return head[:1], os.fsdecode(_rest(agent, size)).split("\0"), files
    except OSError:
        return None


def _rest(agent: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size and (part := agent.recv(size - len(content))):
        content += part
    return content


@lru_cache(1)
def inherited() -> ZygoteLine | None:
    """Return the connection to the zygote that a service has started beside this process; None without one."""
    with suppress(ValueError, OSError):
        connection = socket.socket(fileno=int(os.environ.pop(VARIABLE, "")))
        connection.set_inheritable(False)
        return ZygoteLine(connection)
    return None
