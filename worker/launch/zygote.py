"""The launcher's program: forks a guard for every attempt it is handed. The agent starts it by ``posix.py``.

What it is handed is one byte and three open files: the guard's connection to the agent, the task's stdout and its
stderr. It outlives neither the agent nor the last guard, and kills what a guard that was itself killed left behind.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from contextlib import suppress

from worker.launch import kinship, priority, processes
from worker.launch.groups import remove_places
from worker.launch.guard import Guard, say
from worker.launch.wakeup import Wakeup

FILES = 3
_RETRY_S = 0.02
_TRIES = 100


def main(fd: int, yields: int, *places: str) -> None:
    """``places``: folders for control groups, empty when all is over."""
    agent = socket.socket(fileno=fd)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the agent decides when it is over
    kinship.adopt_orphans()
    if yields:
        priority.lower_own_session()
    gc.freeze()  # what exists now is shared with every guard and never collected: no needless copies of its pages
    guards: set[int] = set()
    _serve(agent, guards)
    agent.close()
    while _reap(guards, 0):  # each guard has seen the agent go as well, and ends
        pass
    for _ in range(_TRIES):  # the dead may stay in them for a moment
        if remove_places(places):
            return
        time.sleep(_RETRY_S)


def _serve(agent: socket.socket, guards: set[int]) -> None:
    """Fork guards until the agent hangs up."""
    wakeup = Wakeup(agent)
    while True:
        if wakeup.wait():
            files = _receive(agent)
            if files is None:
                return
            if len(files) == FILES:
                _fork_guard(agent, files, guards)
            for file in files:
                os.close(file)
        while _reap(guards, os.WNOHANG):
            pass


def _receive(agent: socket.socket) -> list[int] | None:
    """The files of one attempt, None at the end; fewer than ``FILES`` where this process may not open more."""
    try:
        byte, files, _, _ = socket.recv_fds(agent, 1, FILES)
    except OSError:
        return None
    for file in files:
        os.set_inheritable(file, False)
    return files if byte else None


def _fork_guard(agent: socket.socket, files: list[int], guards: set[int]) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        os.write(files[0], say({"trouble": f"cannot start a process: {error.strerror}"}))
        return
    if pid:
        guards.add(pid)
        return
    try:
        agent.close()
        Guard(*files).run()
    except BaseException:
        import traceback  # rarely needed, and copied with every fork otherwise

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _reap(guards: set[int], options: int) -> bool:
    """Take leave of one child that ended, and kill what is ours without being a guard: its guard was killed."""
    with suppress(OSError):  # no file descriptor left: soon again
        for pid in processes.children(os.getpid()):
            if pid not in guards:
                os.kill(pid, signal.SIGKILL)
    try:
        pid, _ = os.waitpid(-1, options)
    except ChildProcessError:
        return False
    guards.discard(pid)
    return pid != 0
