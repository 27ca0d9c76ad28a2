"""Waiting for readable files and for the end of children at once.

On Linux the end of a child is a readable file, too (signalfd(2)). Elsewhere a signal handler makes it one.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal

from loopline_worker.supervisor.subreaper import libc

_CHILDREN_BYTES = 4096
"""More than there ever is to read of ends of children."""
_MOST_SIGNALS = 1024
"""Size of the C library's sets of signals."""


class Selector:
    """Sleeps until there is something to do. There is one in a process: it takes over SIGCHLD."""

    def __init__(self, *files: int) -> None:
        self._child_file = _open_child_file()
        self.child_ended = False  # before the last ``wait`` was over
        self._poll = select.poll()
        self.watch(self._child_file)  # first, so that data from before a child's end is seen together with the end
        for file in files:
            self.watch(file)

    def watch(self, file: int) -> None:
        """Have ``wait`` return when this file is readable."""
        self._poll.register(file, select.POLLIN)

    def unwatch(self, file: int) -> None:
        """Undo ``watch``."""
        self._poll.unregister(file)

    def wait(self, longest_s: float | None = None) -> list[int]:
        """Return the files that are readable or hung up; none if only a child ended or the time is over."""
        ready = [file for file, _ in self._poll.poll(None if longest_s is None else 1000 * longest_s)]
        self.child_ended = self._child_file in ready
        if self.child_ended:
            ready.remove(self._child_file)
            os.read(self._child_file, _CHILDREN_BYTES)
        return ready

    def is_readable(self, file: int) -> bool:
        """True if the file is readable or hung up at this moment."""
        return bool(select.select([file], [], [], 0)[0])

    def wait_for_child(self, longest_s: float) -> None:
        """Wait for at most ``longest_s`` until a child has ended, even if files are readable."""
        if select.select([self._child_file], [], [], longest_s)[0]:
            os.read(self._child_file, _CHILDREN_BYTES)


def _open_child_file() -> int:
    """Open a file that is readable once a child has ended. Raises OSError if there is no file descriptor left."""
    return _open_signalfd(libc) if libc else _open_by_handler()


def _open_signalfd(libc: ctypes.CDLL) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # programs that are started must not inherit that
    signals = (ctypes.c_ulong * (_MOST_SIGNALS // 8 // ctypes.sizeof(ctypes.c_ulong)))(1 << signal.SIGCHLD - 1)
    file: int = libc.signalfd(-1, signals, os.O_NONBLOCK | os.O_CLOEXEC)
    if file < 0:
        raise OSError("there can be no signalfd")
    return file


def _open_by_handler() -> int:
    file, written_by_python = os.pipe()
    for end in (file, written_by_python):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(written_by_python, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    return file
