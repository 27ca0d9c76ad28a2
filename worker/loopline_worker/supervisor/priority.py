"""The lowest priority that really yields to the owner of the computer.

``nice`` alone has no effect on a desktop: there every session is a scheduling group of its own (sched(7), "The
autogroup feature"), and nice only ranks processes within one group. So the zygote opens *one* session and gives its
group the nice value 19. All supervisors and tasks stay in it, themselves nice 19 and SCHED_IDLE: a supervisor lowers
itself once, and its tasks inherit that. The agent, whose priority is not low, kills what has to be killed in time.
Why one session instead of one for each task: an unprivileged process may lower a group only ten times a second,
counted over the whole machine. A session that a task opens for itself is lowered when the task is next measured
(``process_tree.PosixTree``).

SCHED_IDLE implies the idle I/O class (ioprio_set(2)), which is set all the same: it stays when a task changes its
scheduling class. Where systemd groups by slice instead of by session, only the weight of the slice helps, which the
installer sets. On macOS the priority is background QoS, the only thing that ``taskpolicy -b`` sets.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from loopline_worker.supervisor.processes import read, write

LOWEST = 19
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "armv7l": 314, "i686": 289, "ppc64le": 273, "s390x": 282}
"""Numbers of the system call, by machine: the C library has no function for it."""
_IDLE_IO_CLASS = 3 << 13
_DARWIN_PROCESS, _DARWIN_BACKGROUND = 4, 0x1000  # of setpriority(2) on macOS
_PATIENCE_S = 1.0
_OOM_SCORE = "/proc/{}/oom_score_adj"
_FIRST_VICTIM = b"900"


def lower_session(pid: int | str = "self") -> bool:
    """Lower the group of a process's whole session. False if it is not low yet: try again later.

    The kernel refuses if a group was lowered just before; or the process is gone, and others of its session are not.
    """
    try:
        write(f"/proc/{pid}/autogroup", str(LOWEST).encode())
    except BlockingIOError:
        return False
    except OSError:
        return not os.access("/proc/self/autogroup", os.F_OK)  # no: this kernel has groups
    return True


def lower_own_session() -> None:
    """Lower the group of this process's session; wait until the kernel accepts it."""
    give_up = time.monotonic() + _PATIENCE_S
    while not lower_session() and time.monotonic() < give_up:
        time.sleep(0.02)


def raise_oom_score(pid: int) -> None:
    """Make a process of a task the first victim again. It may have lowered its score, as far as it was before."""
    with suppress(OSError):  # it has ended, or has a user of its own
        write(_OOM_SCORE.format(pid), _FIRST_VICTIM)


class RaisedOomScore:
    """Make processes started in this context the first victims when memory runs out; the starter stays protected."""

    def __init__(self) -> None:
        own = _OOM_SCORE.format("self")
        self._before, self._file = read(own).strip(), -1
        with suppress(OSError):
            self._file = os.open(own, os.O_WRONLY)

    def __enter__(self) -> None:
        if self._file >= 0:
            try:
                os.pwrite(self._file, _FIRST_VICTIM, 0)
            except OSError:
                self.close()

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            try:
                os.pwrite(self._file, self._before, 0)
            except OSError:
                self.close()

    def close(self) -> None:
        """Leave the score as it is from now on."""
        os.close(self._file)
        self._file = -1


def yield_to_owner() -> None:
    """Give this process and its children the lowest priority."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if sys.platform == "linux":
        lower_disk_access()
    elif sys.platform == "darwin":
        with suppress(OSError):
            os.setpriority(_DARWIN_PROCESS, 0, _DARWIN_BACKGROUND)


def knows_disk_call() -> bool:
    """True if the number of ``ioprio_set`` is known for this machine."""
    return os.uname().machine in _IOPRIO_SET


def lower_disk_access() -> None:
    """Give this process the idle I/O class, if this machine's system call for that is known."""
    from loopline_worker.supervisor.subreaper import libc  # the agent, which never calls this, loads no ctypes

    if knows_disk_call() and libc:
        libc.syscall(_IOPRIO_SET[os.uname().machine], 1, 0, _IDLE_IO_CLASS)
