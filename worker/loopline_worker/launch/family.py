"""What is below a guard, as the agent sees it: signalled as a whole, and its CPU time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

import psutil

from loopline_worker.supervisor import processes

_MOST_ROUNDS = 20


def tree_of(guard: int) -> list[processes.Process]:
    """What is below a guard. OSError where it cannot be looked at."""
    return [process for pid in processes.descendants(guard) if (process := processes.look(pid))]


def signal_all(guard: int, signum: int) -> int:
    """Signal all below a guard, and what they start meanwhile; how many. OSError where it cannot be looked at."""
    return for_all(guard, signum, lambda pid: os.kill(pid, signum))


def for_all(guard: int, signum: int, act: Callable[[int], None]) -> int:
    """``signal_all`` by another means; what that cannot do is done by the signal.

    In so many rounds at most, for something may fork faster than we look: then it is for the next call.
    """
    if sys.platform != "linux":
        return _signal_without_proc(guard, signum)
    done: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        fresh = set(processes.descendants(guard)) - done
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


def _signal_without_proc(guard: int, signum: int) -> int:
    """The process groups of the guard's children at one stroke, then whoever else psutil finds below it."""
    below: list[psutil.Process] = []
    with suppress(psutil.Error):
        root = psutil.Process(guard)
        groups = {group for child in root.children() if (group := _group_of(child.pid)) and group != _group_of(guard)}
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
    """0 where it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


class UsedByTree:
    """CPU time of a whole tree, with that of processes whose parents do not wait for them (SIGCHLD ignored).

    What is waited for is found again in a parent's account; what goes and is not was lost, and is remembered here.
    ``before_s``: what the guard had waited for when the tree began.
    """

    def __init__(self, before_s: float = 0.0) -> None:
        self._before_s = before_s
        self._lost_cpu_s = 0.0
        self._seen_cpu_s: dict[int, float] = {}  # each one's own, and of those that it had waited for
        self._seen_waited_s: dict[int, float] = {}

    def cpu_s(self, guard: processes.Process, tree: list[processes.Process]) -> float:
        """Until now; what came and went since the last look is missing."""
        now_s = {process.pid: process.cpu_s + process.waited_cpu_s for process in tree}
        waited_s = {process.pid: process.waited_cpu_s for process in (guard, *tree)}
        gone_s = sum(used_s for pid, used_s in self._seen_cpu_s.items() if pid not in now_s)
        found_s = sum(s - self._seen_waited_s[pid] for pid, s in waited_s.items() if pid in self._seen_waited_s)
        self._lost_cpu_s += max(0.0, gone_s - max(0.0, found_s))
        self._seen_cpu_s, self._seen_waited_s = now_s, waited_s
        waited_by_guard_s = max(0.0, guard.waited_cpu_s - self._before_s)
        return waited_by_guard_s + sum(now_s.values()) + self._lost_cpu_s
