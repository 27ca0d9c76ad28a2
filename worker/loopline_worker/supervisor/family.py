"""The processes below a supervisor: found, and signalled all at once.

The agent does it, whose priority is not low; where tasks have users of their own, the zygote does it for the agent.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from loopline_worker.supervisor import processes

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_ROUNDS = 20
_KCMP = {"x86_64": 312, "aarch64": 272}
"""Number of kcmp(2), by machine."""
_SAME_MEMORY = 1


def load() -> None:
    """Load what signalling needs, before anybody waits for it. An agent without tasks never calls this."""
    from loopline_worker.supervisor import subreaper  # noqa: F401


def tree_of(supervisor: int) -> list[processes.Process]:
    """Return the processes below a supervisor. Raises OSError if they cannot be read."""
    return [process for pid in processes.descendants(supervisor) if (process := processes.status(pid))]


def signal_all(supervisor: int, signum: int) -> int:
    """Signal all processes below a supervisor, including those started during the call. Return their number.

    Raises OSError if they cannot be read.
    """
    return for_all(supervisor, signum, lambda pid: os.kill(pid, signum))


def for_all(supervisor: int, signum: int, act: Callable[[int], None]) -> int:
    """Do ``signal_all`` by another means; processes for which that fails are signalled.

    The number of rounds is limited, because a task may fork faster than the agent can scan; the next call continues.
    """
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
    be blocked as long, and could not report starts and ends of tasks.
    """
    from loopline_worker.supervisor.subreaper import libc

    number = _KCMP.get(os.uname().machine)
    if not number or not libc:
        return False
    order = libc.syscall(number, supervisor, pid, _SAME_MEMORY, 0, 0)
    return order == 0 or (order < 0 and _looks_like(supervisor, pid))


def _looks_like(supervisor: int, pid: int) -> bool:
    """True for a child of exactly the supervisor's size; without asking for facts that need the permission to trace
    both.
    """
    of_both = processes.status(supervisor), processes.status(pid)
    if not of_both[0] or not of_both[1] or of_both[1].parent != supervisor:
        return False
    return of_both[0].address_bytes == of_both[1].address_bytes
