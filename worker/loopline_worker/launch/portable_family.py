"""The processes below a supervisor on systems without /proc; ``supervisor/family.py`` has those of Linux."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import psutil

from loopline_worker.launch.interface import Usage
from loopline_worker.supervisor import family


def signal_all(supervisor: int, signum: int) -> int:
    """Signal all processes below a supervisor, including those started during the call. Return their number.

    Raises OSError if they cannot be read.
    """
    if sys.platform != "linux":
        return _signal_without_proc(supervisor, signum)
    return family.signal_all(supervisor, signum)


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
