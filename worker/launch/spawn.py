"""From a guard to its task: fork, become small and low, exec."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from typing import TYPE_CHECKING

from worker.launch import kinship, priority
from worker.launch.groups import Group

if TYPE_CHECKING:
    from typing import NoReturn, TypedDict

    class Job(TypedDict):
        command: list[str]
        sandbox: list[str]  # a program that runs the command in one, and its options; empty: none
        folder: str
        environment: dict[str, str]
        yields: bool
        name: str
        places: dict[str, str]
        limits: dict[str, int | None]


_TRACES = ("LOOPLINE_SCRATCH",)
"""By which a later agent finds what is left of this one; ours to set, not the job's."""


class SpawnError(Exception):
    """The task could not be started; ``number`` is exec's errno, 0 where it never came to exec."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number
        self.reason = reason


def spawn(job: Job, group: Group, stdout: int, stderr: int) -> int:
    """Start the task and return its process id once it really runs; SpawnError else."""
    guard = os.getpid()
    hear, tell = os.pipe()  # closed by exec: silence is success
    pid = os.fork()
    if pid == 0:
        _become(job, group, guard, stdout, stderr, tell)
    os.close(tell)
    trouble = b""
    while part := os.read(hear, 65536):
        trouble += part
    os.close(hear)
    if trouble:
        os.waitpid(pid, 0)
        raise SpawnError(*json.loads(trouble))
    return pid


def _become(job: Job, group: Group, guard: int, stdout: int, stderr: int, tell: int) -> NoReturn:
    is_ready = False
    try:
        _prepare(job, group, guard, stdout, stderr)
        is_ready = True
        _execute(job)
    except BaseException as error:
        number = getattr(error, "errno", errno.EINVAL) if is_ready else 0
        reason = getattr(error, "strerror", None) or str(error)
        os.write(tell, json.dumps([number, reason]).encode())
    finally:
        os._exit(127)


def _prepare(job: Job, group: Group, guard: int, stdout: int, stderr: int) -> None:
    kinship.die_with(guard)
    group.enter()
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


def _execute(job: Job) -> NoReturn:
    """The command, by way of its sandbox if it has one.

    The sandbox itself must not have the task's environment, for LD_PRELOAD there would run whatever it likes outside.
    It reads that, with its other options, from a file: a command line is for everybody to see.
    """
    if not job["sandbox"]:
        _limit(job["limits"])
        os.execvpe(job["command"][0], job["command"], job["environment"])  # noqa: S606
    program, *options = job["sandbox"]
    file = _file_of(options)
    _limit(job["limits"])
    minimal = {name: job["environment"][name] for name in _TRACES if name in job["environment"]}
    os.execve(program, [program, "--args", str(file), "--", *job["command"]], minimal)  # noqa: S606


def _file_of(options: list[str]) -> int:
    """An open file without a name, with each option ended by a NUL; ValueError for one that has a NUL in it."""
    if any("\0" in option for option in options):
        raise ValueError("embedded null byte")
    file = os.memfd_create("options", 0)  # which stays open in the program that is executed
    with os.fdopen(file, "wb", closefd=False) as stream:
        stream.write(b"".join(os.fsencode(option) + b"\0" for option in options))
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _limit(limits: dict[str, int | None]) -> None:
    """What the system keeps for each process: the size of a file, no core dumps, how many processes its user has."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, limit in (("RLIMIT_FSIZE", limits.get("file_bytes")), ("RLIMIT_NPROC", limits.get("user_threads"))):
        if limit is not None:
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            lower = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (lower, lower))
