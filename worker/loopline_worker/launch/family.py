"""The processes below a supervisor, as the agent sees them: signalled all at once, and measured."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import psutil

from loopline_worker.launch.interface import Usage
from loopline_worker.supervisor import processes, subreaper

_MOST_ROUNDS = 20
_KCMP = {"x86_64": 312, "aarch64": 272}
"""Number of kcmp(2), by machine."""
_SAME_MEMORY = 1


def tree_of(supervisor: int) -> list[processes.Process]:
    """Return the processes below a supervisor. Raises OSError if they cannot be read."""
    return [process for pid in processes.descendants(supervisor) if (process := processes.status(pid))]


def signal_all(supervisor: int, signum: int) -> int:
    """Signal all processes below a supervisor, and those that they start meanwhile; return how many.

    Raises OSError if they cannot be read.
    """
    return for_all(supervisor, signum, lambda pid: os.kill(pid, signum))


def for_all(supervisor: int, signum: int, act: Callable[[int], None]) -> int:
    """Do ``signal_all`` by another means; processes for which that fails are signalled.

    The number of rounds is limited, for a task may fork faster than the agent can look: the next call goes on.
    """
    if sys.platform != "linux":
        return _signal_without_proc(supervisor, signum)
    done: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        fresh = set(processes.descendants(supervisor)) - done
        if signum == signal.SIGSTOP:
            fresh = {pid for pid in fresh if not _is_starting(supervisor, pid)}
        if not fresh:
            break
        for pid in fresh:
            try:
                act(pid)
            except OSError:
                with suppress(OSError):
                    os.kill(pid, signum)
        done |= fresh
    return len(done)


def _is_starting(supervisor: int, pid: int) -> bool:
    """True for a process that the supervisor is just starting, and that runs no line of its task's program yet.

    The supervisor waits for it with its memory lent to it (vfork(2)): if it were stopped there, the supervisor would
    stand still for as long, and could not tell which task it has begun and which has ended.
    """
    number, libc = _KCMP.get(os.uname().machine), subreaper.libc
    return bool(number and libc and libc.syscall(number, supervisor, pid, _SAME_MEMORY, 0, 0) == 0)


def usage_of(pid: int, with_itself: bool = True) -> Usage:
    """Measure a process and its living descendants by psutil, for systems without /proc."""
    cpu_s, memory_bytes, tree = 0.0, 0, list[psutil.Process]()
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        tree = [*([root] if with_itself else []), *root.children(recursive=True)]
        for process in tree:
            with suppress(psutil.Error):
                times = process.cpu_times()
                cpu_s += times.user + times.system
                memory_bytes += process.memory_info().rss
    return Usage(cpu_s, memory_bytes, len(tree))


def _signal_without_proc(supervisor: int, signum: int) -> int:
    """Signal the process groups of the supervisor's children, then each other process that psutil finds below it."""
    below: list[psutil.Process] = []
    with suppress(psutil.Error):
        root, own = psutil.Process(supervisor), _group_of(supervisor)
        groups = {group for child in root.children() if (group := _group_of(child.pid)) and group != own}
        for group in groups:
            with suppress(OSError):
                os.killpg(group, signum)
        below = root.children(recursive=True)
        for process in below:
            if _group_of(process.pid) not in groups:
                with suppress(psutil.Error, OSError):
                    process.send_signal(signum)
    return len(below)


def _group_of(pid: int) -> int:
    """Return the process group; 0 if the process has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
