"""Wait for files that can be read and for the end of children at once.

On Linux a child's end is something to be read, too (signalfd(2)). Elsewhere it interrupts whatever is being done, and
is told from there.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
from contextlib import suppress

from loopline_worker.supervisor.subreaper import libc

_MOST_SIGNALS = 1024
"""That the C library has room for in a set of them."""


class Wakeup:
    """A guard's or the launcher's sleep. One per process: it takes over SIGCHLD."""

    def __init__(self, *files: int) -> None:
        self._bell = _bell()
        self.has_rung = False  # a child ended before the last ``wait`` was over
        self._poll = select.poll()
        self.watch(self._bell)  # looked at first: what came before a child ended is seen together with its end
        for file in files:
            self.watch(file)

    def watch(self, file: int) -> None:
        self._poll.register(file, select.POLLIN)

    def forget(self, file: int) -> None:
        self._poll.unregister(file)

    def wait(self, longest_s: float | None = None) -> list[int]:
        """Which files have something or were hung up; perhaps none, for the end of a child wakes up too."""
        ready = [file for file, _ in self._poll.poll(None if longest_s is None else 1000 * longest_s)]
        self.has_rung = self._bell in ready
        if self.has_rung:
            ready.remove(self._bell)
            self._silence()
        return ready

    def has(self, file: int) -> bool:
        """Whether there is something to read now, or it was hung up."""
        return bool(select.select([file], [], [], 0)[0])

    def pause(self, longest_s: float) -> None:
        """Until a child ended, or for ``longest_s``, whatever there is to read."""
        if select.select([self._bell], [], [], longest_s)[0]:
            self._silence()

    def _silence(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._bell, 4096)


def _bell() -> int:
    """A file that can be read once a child has ended. OSError where there is no file descriptor left."""
    return _by_system(libc) if libc else _by_handler()


def _by_system(libc: ctypes.CDLL) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # programs that are started must not inherit that
    signals = (ctypes.c_ulong * (_MOST_SIGNALS // 8 // ctypes.sizeof(ctypes.c_ulong)))(1 << signal.SIGCHLD - 1)
    bell: int = libc.signalfd(-1, signals, os.O_NONBLOCK | os.O_CLOEXEC)
    if bell < 0:
        raise OSError("there can be no signalfd")
    return bell


def _by_handler() -> int:
    bell, ring = os.pipe()
    for end in (bell, ring):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    return bell
