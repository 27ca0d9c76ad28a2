"""Starting a task from its supervisor by ``posix_spawn``, which copies nothing of the supervisor.

The task inherits what it needs: the supervisor works in the task's folder, has its limits and the lowest priority,
and is in the control groups of its slot. So nothing is left to do between the copy and the program.
"""

from __future__ import annotations

import _thread
import errno
import os
import resource
import signal

from loopline_worker.supervisor.users import credentials
from loopline_worker.supervisor.walls import landlock, namespaces

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from collections.abc import Callable

    from loopline_worker.supervisor.orders import TaskOrder
    from loopline_worker.supervisor.users.credentials import TaskUser

    FileActions = list[tuple[int, int, int]]

_DEFAULT_SIGNALS = [int(signum) for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}]
"""All signals: the task would inherit what is ignored here, and naming all spares the C library from asking."""
_current_limits: dict[str, int | None] = {}


def disable_core_dumps() -> None:
    """Forbid core dumps of this process and its children."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def spawn(order: TaskOrder, stdout: int, stderr: int, user: TaskUser | None = None) -> int:
    """Start the task, as that user if there is one, and return its process id once it runs.

    Raises OSError or ValueError if it cannot be run.
    """

    def start(order: TaskOrder, actions: FileActions) -> int:
        if user or order.places or order.paths:
            return apart(lambda: _spawn_within(order, actions, user))
        return _spawn_from_path(order, actions)

    actions = [(os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
    user_threads = order.user_threads
    _limit("RLIMIT_NPROC", user_threads)
    try:
        return start(order, actions)
    except BlockingIOError:
        if user_threads is None:
            raise
    _limit("RLIMIT_NPROC", None)  # other programs have as many processes: only the agent limits the task
    return start(order, actions)


def _spawn_from_path(order: TaskOrder, actions: FileActions) -> int:
    """Start the command as execvp(3) does, by the PATH that the job asks for."""
    _limit("RLIMIT_FSIZE", order.file_bytes)
    command, environment = order.command, order.environment
    if not command:
        raise ValueError("there is none")
    if "/" in command[0]:
        return _spawn(command[0], command, environment, actions)
    refused: OSError | None = None
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        program = f"{folder}/{command[0]}" if folder else command[0]
        if not os.access(program, os.F_OK):
            continue
        try:
            return _spawn(program, command, environment, actions)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _spawn_within(order: TaskOrder, actions: FileActions, user: TaskUser | None) -> int:
    """Start the command from a thread that gives up what the task is not to have, and this process needs again."""
    if user:
        credentials.become(user, has_gpus=order.has_gpus)
    if order.places:
        namespaces.enter(*order.places)
        os.chdir(order.folder)
    elif order.paths:
        landlock.confine(order.paths)
    return _spawn_from_path(order, actions)


def apart(work: Callable[[], int], stays: _thread.LockType | None = None) -> int:
    """Do this in a thread of its own, which may give up what this one needs again; return the result.

    ``stays``: the thread stays until this lock is released, because its children die with it (prctl(2)).
    """
    results: list[int | Exception] = []
    is_done = _thread.allocate_lock()
    is_done.acquire()

    def do() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)
        finally:
            is_done.release()
        if stays:
            stays.acquire()

    _thread.start_new_thread(do, ())
    is_done.acquire()
    if isinstance(result := results[0], Exception):
        raise result
    return result


def _spawn(program: str, command: list[str], environment: dict[str, str], actions: FileActions) -> int:
    """Start a program in a process group of its own, but in the zygote's session: see priority.py."""
    return os.posix_spawn(
        program,
        command,
        environment,
        file_actions=actions,
        setpgroup=0,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )


def _limit(name: str, limit: int | None) -> None:
    """Set a resource limit of the supervisor, which the task inherits: the size of a file, the user's processes.

    Only the soft limit is set, which can be raised again for the next task.
    """
    if _current_limits.get(name) == limit:
        return
    kind = getattr(resource, name)
    _, hard = resource.getrlimit(kind)
    soft = hard if limit is None else limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (soft, hard))
    _current_limits[name] = limit
