"""The zygote: a small process, started by ``launch/posix.py``, that forks a supervisor for each slot.

A request is one byte, the supervisor's connection to the agent, and its claim tokens. The zygote ends when the agent
and the last supervisor have ended, and kills what a supervisor that was itself killed left behind.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from contextlib import suppress

from loopline_worker.supervisor import priority, processes, subreaper
from loopline_worker.supervisor.control_groups import ControlGroup, name_of, remove_places
from loopline_worker.supervisor.intervals import RETRY_S
from loopline_worker.supervisor.orders import pack
from loopline_worker.supervisor.selector import Selector
from loopline_worker.supervisor.supervisor import FILES, Supervisor

_TRIES = 100


def main(fd: int, yields: int, isolates: int, *places: str) -> None:
    """Run the zygote. ``places``: folders for control groups with their purpose, such as ``memory=/sys/...``.

    ``isolates``: tasks are kept from the abstract sockets and the processes of others.
    """
    agent = socket.socket(fileno=fd)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the agent decides when it is over
    subreaper.adopt_orphans()
    if yields:
        priority.lower_own_session()
    gc.freeze()  # what exists now is shared with every supervisor and never collected: its pages are not copied
    Zygote(agent, bool(yields), bool(isolates), dict(place.split("=", 1) for place in places)).run()


class Zygote:
    """Forks supervisors and reaps them."""

    def __init__(self, agent: socket.socket, yields: bool, isolates: bool, places: dict[str, str]) -> None:
        self._agent = agent
        self._yields = yields
        self._isolates = isolates
        self._places = places
        self._supervisors: set[int] = set()
        self._groups_left: set[int] = set()  # supervisors that are gone, while their groups are not

    def run(self) -> None:
        """Serve until the agent hangs up; return when every supervisor and every control group is gone."""
        self._serve()
        self._agent.close()
        while self._reap(0):  # each supervisor has seen the agent go as well, and ends
            pass
        for _ in range(_TRIES):  # dead processes may stay in the groups for a moment
            if remove_places(set(self._places.values())):
                return
            time.sleep(RETRY_S)

    def _serve(self) -> None:
        selector = Selector(self._agent.fileno())
        while True:
            if selector.wait():
                request = self._receive()
                if request is None:
                    return
                if len(request) == FILES:
                    self._fork_supervisor(*request)
                for file in request:
                    os.close(file)
            while self._reap(os.WNOHANG):
                pass

    def _receive(self) -> list[int] | None:
        """Return the files of a request, fewer if descriptors are short; None at the end."""
        try:
            byte, files, _, _ = socket.recv_fds(self._agent, 1, FILES)
        except OSError:
            return None
        for file in files:
            os.set_inheritable(file, False)
        return files if byte else None

    def _fork_supervisor(self, connection: int, claims: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            os.write(connection, pack({"trouble": f"cannot start a process: {error.strerror}"}))
            return
        if pid:
            self._supervisors.add(pid)
            return
        try:
            self._agent.close()
            Supervisor(connection, claims, self._yields, self._places, self._isolates).run()
        except BaseException:
            import traceback  # rarely needed, and copied with every fork otherwise

            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _reap(self, options: int) -> bool:
        """Reap one child. False if there is none to reap.

        Children that are no supervisors are killed: they were left behind by a supervisor that was killed.
        """
        with suppress(OSError):  # no file descriptor left: soon again
            for pid in processes.children(os.getpid()):
                if pid not in self._supervisors:
                    os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, options)
        except ChildProcessError:
            return False
        if pid in self._supervisors:
            self._supervisors.discard(pid)
            self._groups_left.add(pid)
        self._groups_left = {
            supervisor
            for supervisor in self._groups_left
            if not ControlGroup(self._places, name_of(supervisor)).remove()
        }
        return pid != 0
