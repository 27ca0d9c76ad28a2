"""A hold: the processes of a task, stopped for some milliseconds so that its files can be taken as they are.

A task may be held and frozen at the same time, and continues when it is neither. A hold continues only processes that
it has stopped: a process that the task itself had stopped before stays stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from loopline_worker.supervisor import processes
from loopline_worker.supervisor.control_groups import ControlGroup

_STOPPED, _GONE = "Tt", "ZX"


class Hold:
    """The hold of one task, whose processes are below ``root``."""

    def __init__(self, root: int, group: ControlGroup, kill: Callable[[Sequence[int], int], None]) -> None:
        """Begin to stop all processes. ``kill`` sends a signal to some of them. Raises OSError."""
        self.must_thaw = False  # its thaw came during the hold
        self._kill = kill
        self._root = root
        self._group = group
        self._stopped: set[int] = set()  # by a signal of ours
        self.has_group = group.freeze(True)
        self._frozen = group.frozen_part() if self.has_group else set()  # moving a process there takes 10 ms
        self.is_complete()

    def is_complete(self) -> bool:
        """True if no thread of the task can run. Those that can are being stopped. False if that is unknown."""
        try:
            stopped = self._group.stopped()
            moving = [pid for pid in processes.descendants(self._root) if pid not in stopped and not _is_stopped(pid)]
            self._stop(moving)
        except OSError:  # no file descriptor left
            return False
        return not moving

    def release(self) -> bool:
        """Continue what was stopped here. False if its control group is still frozen."""
        is_thawed = not self.has_group or self._group.freeze(False)
        if self._stopped:
            self._kill([*self._stopped], signal.SIGCONT)
        return is_thawed or not self._group.is_set_to_freeze()

    def _stop(self, pids: Sequence[int]) -> None:
        to_signal = [pid for pid in pids if not (self.has_group and self._is_freezing(pid)) and _may_run(pid)]
        if to_signal:
            self._stopped.update(to_signal)
            self._kill(to_signal, signal.SIGSTOP)

    def _is_freezing(self, pid: int) -> bool:
        """True if the control group stops a process; perhaps it is moved there. Otherwise only a signal can."""
        if pid in self._frozen:
            return True
        with suppress(OSError):
            self._group.add_to_frozen(pid)
            return True
        return False


def kill(pids: Sequence[int], signum: int) -> None:
    """Signal processes of this user."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signum)


def _may_run(pid: int) -> bool:
    process = processes.status(pid)
    return process is not None and process.state not in _STOPPED + _GONE


def _is_stopped(pid: int) -> bool:
    """True if each thread of a process is stopped, or has ended."""
    return all(state in _STOPPED + _GONE for state in processes.thread_states(pid))
