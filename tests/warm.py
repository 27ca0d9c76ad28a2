"""Commands are forked from a process that has imported the command line, since imports take most of a start.

The processes of pytest-xdist are forked too, from the process that has imported the suite.

A command has the caller's streams, folder, environment and signals, and its own processes. Real starts of
`python -m loopline` are tested by tests/test_warm.py, and in `make test-full` by tests/docs/test_tutorial.py,
tests/live/test_local.py and tests/cli/test_commands.py.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing import current_process, resource_tracker
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tests.live.daemons import FORKS, PR_SET_PDEATHSIG

_CLIENT = Path(__file__).with_name("warm_client.py")


def starting(module: str) -> list[str]:
    """Return the first words of a command line that does the same as ``python -m module``."""
    if sys.platform != "linux":
        return [sys.executable, "-m", module]
    return [sys.executable, "-I", "-S", str(_CLIENT), _address(), module]


def python_as_this_process() -> list[str]:
    """Return a substitute for ``python`` in ``python -u -c CODE``: a fork of this process runs CODE."""

    def serve(listener: socket.socket) -> None:
        if os.fork() == 0:
            _serve(listener)

    return [sys.executable, "-I", "-S", str(_CLIENT), _served_by(serve)]


@cache
def _address() -> str:
    """Return the address of the process that forks commands; each process of the suite has one."""
    return _served_by(lambda listener: FORKS.Process(target=_serve_commands, args=(listener,), daemon=True).start())


def _served_by(start: Callable[[socket.socket], None]) -> str:
    folder = tempfile.mkdtemp(prefix="loopline-warm-")
    atexit.register(_remove, folder, os.getpid())
    address = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        start(listener)
    return address


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a fork must do this at its exit too
        shutil.rmtree(folder, ignore_errors=True)


def _serve_commands(listener: socket.socket) -> None:
    from loopline.cli import app

    for _, path, _ in app.COMMANDS.values():
        importlib.import_module(path.partition(":")[0])
    _serve(listener)


def _serve(listener: socket.socket) -> NoReturn:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed run leaves no process behind
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the exit code of an attendant is not used
    while True:
        link, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _attend(link)
        link.close()


def _attend(link: socket.socket) -> NoReturn:
    """In a fork: let another fork run the command, and report its end; a caller that disconnects ends it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(link, 4, 3)
    size = int.from_bytes(length, "big")
    module, words, folder, environment = marshal.loads(link.recv(size, socket.MSG_WAITALL))
    process = os.fork()
    if process == 0:
        os._exit(_run(module, words, folder, environment, streams))
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(process)
    with suppress(OSError):  # the caller is gone already, as the closed link shows
        link.sendall(process.to_bytes(4, "big"))
    ready, _, _ = select.select([ended, link], [], [])
    if ended not in ready:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if ended in ready:
        with suppress(OSError):
            link.sendall(code.to_bytes(4, "big", signed=True))
    os._exit(0)


def _run(module: str, words: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> int:
    """In the second fork: prepare the process like a shell and an interpreter, run the module, return the code."""
    os.setpgid(0, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1)
    resource_tracker._resource_tracker._fd = None  # type: ignore[attr-defined]  # closed: started again when needed
    current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # or it may have no children
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    code = _main(module, words)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for text in (sys.stdout, sys.stderr):
        if not text.closed:
            text.flush()
    return code


def _main(module: str, words: list[str]) -> int:
    try:
        if module == "-u":  # -u -c CODE: a process of pytest-xdist
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(words[-1], main.__dict__)
            return 0
        os.execv = _become  # type: ignore[assignment]
        sys.argv = [module, *words]
        for known in (module, f"{module}.__main__"):
            if not hasattr(sys.modules.get(known), "__path__"):
                sys.modules.pop(known, None)  # runpy warns about modules imported before
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # like the exit of an interpreter
        os.kill(os.getpid(), signal.SIGINT)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _become(file: str, command: list[str]) -> NoReturn:
    """Continue as another program of ours, like `os.execv`. A worker is really started: the place of its token
    depends on HOME at the time of its import.
    """
    if command[:3] != [sys.executable, "-P", "-m"] or command[3] == "loopline_worker":
        os.execve(file, command, os.environ)
    raise SystemExit(_main(command[3], command[4:]))
