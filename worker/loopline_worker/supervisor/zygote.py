"""The launcher's program: forks a guard for every connection it is handed. The agent starts it by ``posix.py``.

What it is handed is one byte, the guard's connection to the agent, and its tickets. It outlives neither the agent nor
the last guard, and kills what a guard that was itself killed left behind.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from contextlib import suppress

from loopline_worker.supervisor import priority, processes, subreaper
from loopline_worker.supervisor.control_groups import Group, name_of, remove_places
from loopline_worker.supervisor.framing import pack
from loopline_worker.supervisor.selector import Wakeup
from loopline_worker.supervisor.supervisor import FILES, Guard

_RETRY_S = 0.02
_TRIES = 100


def main(fd: int, yields: int, *places: str) -> None:
    """``places``: folders for control groups with what each is for, ``memory=/sys/...``; empty when all is over."""
    agent = socket.socket(fileno=fd)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the agent decides when it is over
    subreaper.adopt_orphans()
    if yields:
        priority.lower_own_session()
    gc.freeze()  # what exists now is shared with every guard and never collected: no needless copies of its pages
    Zygote(agent, bool(yields), dict(place.split("=", 1) for place in places)).run()


class Zygote:
    def __init__(self, agent: socket.socket, yields: bool, places: dict[str, str]) -> None:
        self._agent = agent
        self._yields = yields
        self._places = places
        self._guards: set[int] = set()
        self._left: set[int] = set()  # guards that are gone, but not their groups

    def run(self) -> None:
        self._serve()
        self._agent.close()
        while self._reap(0):  # each guard has seen the agent go as well, and ends
            pass
        for _ in range(_TRIES):  # the dead may stay in them for a moment
            if remove_places(set(self._places.values())):
                return
            time.sleep(_RETRY_S)

    def _serve(self) -> None:
        """Fork guards until the agent hangs up."""
        wakeup = Wakeup(self._agent.fileno())
        while True:
            if wakeup.wait():
                connection = self._receive()
                if connection is None:
                    return
                if len(connection) == FILES:
                    self._fork_guard(*connection)
                for file in connection:
                    os.close(file)
            while self._reap(os.WNOHANG):
                pass

    def _receive(self) -> list[int] | None:
        """What one guard has of the agent; less where this process may not open more, None at the end."""
        try:
            byte, files, _, _ = socket.recv_fds(self._agent, 1, FILES)
        except OSError:
            return None
        for file in files:
            os.set_inheritable(file, False)
        return files if byte else None

    def _fork_guard(self, connection: int, tickets: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            os.write(connection, pack({"trouble": f"cannot start a process: {error.strerror}"}))
            return
        if pid:
            self._guards.add(pid)
            return
        try:
            self._agent.close()
            Guard(connection, tickets, self._yields, self._places).run()
        except BaseException:
            import traceback  # rarely needed, and copied with every fork otherwise

            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _reap(self, options: int) -> bool:
        """Take leave of one child that ended, and kill what is ours without being a guard: its guard was killed."""
        with suppress(OSError):  # no file descriptor left: soon again
            for pid in processes.children(os.getpid()):
                if pid not in self._guards:
                    os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, options)
        except ChildProcessError:
            return False
        if pid in self._guards:
            self._guards.discard(pid)
            self._left.add(pid)
        self._left = {guard for guard in self._left if not Group(self._places, name_of(guard)).remove()}
        return pid != 0
