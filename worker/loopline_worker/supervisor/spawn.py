"""From a guard to its task: ``posix_spawn``, which copies nothing of the guard.

What the task needs to be it inherits: the guard stands in the task's folder, has its limits, is low and in the
control groups of its slot. So there is nothing left to be done between the copy and the program.
"""

from __future__ import annotations

import errno
import os
import resource
import signal

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from loopline_worker.supervisor.orders import TaskOrder

    Places = list[tuple[int, int, int]]

_TRACES = ("LOOPLINE_SCRATCH",)
"""By which a later agent finds what is left of this one; ours to set, not the job's."""
_OPTIONS_FILE = 3
_DEFAULT_SIGNALS = [int(signum) for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}]
"""What is ignored here would be so there. Of one that is not named, the C library first asks how it is."""
_limits: dict[str, int | None] = {}


def dump_no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def spawn(order: TaskOrder, stdout: int, stderr: int) -> int:
    """Start the task and return its process id once it really runs; OSError or ValueError says why it cannot."""
    start = _spawn_walled if order.sandbox else _search
    places = [(os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
    user_threads = order.user_threads
    _limit("RLIMIT_NPROC", user_threads)
    try:
        return start(order, places)
    except BlockingIOError:
        if user_threads is None:
            raise
    _limit("RLIMIT_NPROC", None)  # others have started so many: watching has to do
    return start(order, places)


def _search(order: TaskOrder, places: Places) -> int:
    """As execvp(3) does, in the PATH that the job asks for."""
    _limit("RLIMIT_FSIZE", order.file_bytes)
    command, environment = order.command, order.environment
    if not command:
        raise ValueError("there is none")
    if "/" in command[0]:
        return _spawn(command[0], command, environment, places)
    refused: OSError | None = None
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        program = f"{folder}/{command[0]}" if folder else command[0]
        if not os.access(program, os.F_OK):
            continue
        try:
            return _spawn(program, command, environment, places)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _spawn_walled(order: TaskOrder, places: Places) -> int:
    """By way of its sandbox.

    The sandbox itself must not have the task's environment, for LD_PRELOAD there would run whatever it likes outside.
    It reads that, with its other options, from a file: a command line is for everybody to see.
    """
    program, *options = order.sandbox
    _limit("RLIMIT_FSIZE", None)
    file = _file_of(options)
    try:
        _limit("RLIMIT_FSIZE", order.file_bytes)
        minimal = {name: order.environment[name] for name in _TRACES if name in order.environment}
        command = [program, "--args", str(_OPTIONS_FILE), "--", *order.command]
        return _spawn(program, command, minimal, [*places, (os.POSIX_SPAWN_DUP2, file, _OPTIONS_FILE)])
    finally:
        os.close(file)


def _spawn(program: str, command: list[str], environment: dict[str, str], places: Places) -> int:
    """In a process group of its own, but in the launcher's session: see priority.py."""
    return os.posix_spawn(
        program,
        command,
        environment,
        file_actions=places,
        setpgroup=0,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


def _file_of(options: list[str]) -> int:
    """An open file without a name, with each option ended by a NUL; ValueError for one that has a NUL in it."""
    if any("\0" in option for option in options):
        raise ValueError("embedded null byte")
    file = os.memfd_create("options")
    with os.fdopen(file, "wb", closefd=False) as stream:
        stream.write(b"".join(os.fsencode(option) + b"\0" for option in options))
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _limit(name: str, limit: int | None) -> None:
    """What the system keeps for each process: the size of a file, how many processes its user has.

    Of the guard, which the task inherits: so only the soft limit, which can be raised again for the next task.
    """
    if _limits.get(name) == limit:
        return
    kind = getattr(resource, name)
    _, hard = resource.getrlimit(kind)
    soft = hard if limit is None else limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (soft, hard))
    _limits[name] = limit
