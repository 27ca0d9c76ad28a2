"""From a guard to its task: fork, become small and low, exec."""

from __future__ import annotations

import errno
import json
import os
import signal
from typing import TYPE_CHECKING

from worker.launch import kinship, priority

if TYPE_CHECKING:
    from typing import NoReturn, TypedDict

    class Job(TypedDict):
        command: list[str]
        folder: str
        environment: dict[str, str]
        yields: bool


class SpawnError(Exception):
    """The task could not be started; ``number`` is exec's errno, 0 where it never came to exec."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        self.reason = reason


def spawn(job: Job, stdout: int, stderr: int) -> int:
    """Start the task and return its process id once it really runs; SpawnError else."""
    guard = os.getpid()
    hear, tell = os.pipe()  # closed by exec: silence is success
    pid = os.fork()
    if pid == 0:
        _become(job, guard, stdout, stderr, tell)
    os.close(tell)
    trouble = b""
    while part := os.read(hear, 65536):
        trouble += part
    os.close(hear)
    if trouble:
        os.waitpid(pid, 0)
        raise SpawnError(*json.loads(trouble))
    return pid


def _become(job: Job, guard: int, stdout: int, stderr: int, tell: int) -> NoReturn:
    is_ready = False
    try:
        _prepare(job, guard, stdout, stderr)
        is_ready = True
        os.execvpe(job["command"][0], job["command"], job["environment"])  # noqa: S606
    except BaseException as error:
        number = getattr(error, "errno", errno.EINVAL) if is_ready else 0
        reason = getattr(error, "strerror", None) or str(error)
        os.write(tell, json.dumps([number, reason]).encode())
    finally:
        os._exit(127)


def _prepare(job: Job, guard: int, stdout: int, stderr: int) -> None:
    kinship.die_with(guard)
    os.setpgid(0, 0)  # its own process group, but the launcher's session: see priority.py
    os.chdir(job["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGXFSZ"):  # ignored signals survive exec
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    priority.go_first_when_memory_runs_out()
    if job["yields"]:
        priority.yield_to_owner()
