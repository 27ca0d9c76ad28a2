"""The lowest priority that really yields to the owner of the computer.

``nice`` alone is a no-op on a desktop: there every session is a scheduling group of its own (sched(7), "The
autogroup feature"), and nice only ranks processes within one group. So the launcher opens *one* session, gives its
group the nice value 19, and all tasks stay in it, themselves nice 19 and SCHED_IDLE. A guard leaves that session as
soon as its task runs, so that it kills in time however busy the owner is. Why one session and not one per task: an
unprivileged process may lower a group only ten times a second, counted over the whole machine. A session that a
task opens for itself is lowered when the task is next measured (``posix.PosixTree``).

SCHED_IDLE brings the idle I/O class with it (ioprio_set(2)). Where systemd groups by slice instead of by session,
only the weight of its slice helps: that is for the installer. Off Linux there is only ``nice``.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from worker.launch.processes import write

LOWEST = 19
_PATIENCE_S = 1.0


def lower_session(pid: int | str = "self") -> bool:
    """Lower the group of a process's whole session; False where others just did so: try again later."""
    try:
        write(f"/proc/{pid}/autogroup", str(LOWEST).encode())
    except BlockingIOError:
        return False
    except OSError:
        pass  # no such groups here, or no such process any more
    return True


def lower_own_session() -> None:
    """``lower_session`` for good: waits for its turn."""
    give_up = time.monotonic() + _PATIENCE_S
    while not lower_session() and time.monotonic() < give_up:
        time.sleep(0.02)


def go_first_when_memory_runs_out() -> None:
    with suppress(OSError):
        write("/proc/self/oom_score_adj", b"900")


def yield_to_owner() -> None:
    """Make this process, and all that it starts, the last to be run."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
