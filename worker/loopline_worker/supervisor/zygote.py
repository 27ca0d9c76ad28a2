"""The zygote: a small process that forks a supervisor for each slot.

``launch/posix.py`` starts it, or else a service does, as the one process that may run tasks as users of their own
(``users/service.py``). It ends when the agent and the last supervisor have ended, and kills what a supervisor that
was itself killed left behind. ``requests.py`` lists the agent's requests.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from contextlib import suppress

from loopline_worker.supervisor import family, priority, processes, requests, subreaper
from loopline_worker.supervisor.control_groups import ControlGroup, name_of, remove_places
from loopline_worker.supervisor.intervals import RETRY_S
from loopline_worker.supervisor.orders import pack
from loopline_worker.supervisor.selector import Selector
from loopline_worker.supervisor.supervisor import Supervisor

TYPE_CHECKING = False  # typing is not light
if TYPE_CHECKING:
    from loopline_worker.supervisor.users.slot_users import SlotUsers

_TRIES = 100
_PATIENCE_S = 2.0
"""Supervisors that have not ended so long after their tasks are killed; no more is lost by it than a spare folder."""


def main(fd: int) -> None:
    """Run the zygote of an agent that started it."""
    _ignore_signals()
    Zygote(socket.socket(fileno=fd)).run()


class Zygote:
    """Forks supervisors and reaps them."""

    def __init__(self, agent: socket.socket, users: SlotUsers | None = None, agent_pid: int = 0) -> None:
        """``users``: whom tasks run as; None: as this process. ``agent_pid``: the agent, if it is a child."""
        self._agent = agent
        self._users = users
        self._agent_pid = agent_pid
        self.agent_status = 0  # of wait(2), once the agent has ended
        self._yields = self._isolates = False
        self._places: dict[str, str] = {}
        self._supervisors: set[int] = set()
        self._helpers: set[int] = set()
        self._groups_left: set[int] = set()  # supervisors that are gone, while their groups are not

    def run(self) -> None:
        """Serve until the agent hangs up; return when every supervisor and every control group is gone."""
        subreaper.adopt_orphans()
        if self._users:
            self._users.kill_leftovers()
        self._serve()
        self._agent.close()
        self._end_supervisors()
        while self._reap(0):
            pass
        for _ in range(_TRIES):  # dead processes may stay in the groups for a moment
            if remove_places(set(self._places.values())):
                return
            time.sleep(RETRY_S)

    def _end_supervisors(self) -> None:
        """Kill all tasks, and wait for the supervisors, which see the agent go as well.

        It is done from here because theirs is the lowest priority: on a busy computer it may be their turn late.
        """
        for supervisor in self._supervisors:
            self._signal(supervisor, signal.SIGKILL)
        give_up = time.monotonic() + _PATIENCE_S
        while self._supervisors:
            if self._reap(os.WNOHANG):
                continue
            if time.monotonic() > give_up:
                for supervisor in self._supervisors:
                    os.kill(supervisor, signal.SIGKILL)
            time.sleep(RETRY_S)

    def _serve(self) -> None:
        selector = Selector(self._agent.fileno())
        while True:
            if selector.wait():
                request = requests.receive(self._agent)
                if request is None:
                    return
                kind, words, files = request
                try:
                    self._obey(kind, words, files)
                finally:
                    for file in files:
                        os.close(file)
            while self._reap(os.WNOHANG):
                pass

    def _obey(self, kind: bytes, words: list[str], files: list[int]) -> None:
        if kind == requests.FORK and len(files) == requests.FILES:
            self._fork_supervisor(*files)
        elif kind == requests.CONFIGURE:
            self._configure(*words)
        elif kind == requests.SIGNAL:
            self._signal(*map(int, words))
        elif kind == requests.HAND_OVER and self._users:
            self._users.hand_over(*words)
        elif kind == requests.MEASURE and self._users and files:
            self._helpers.add(self._users.start_measuring(words[0], files[0]))
        elif kind == requests.LEASE and self._users and files:
            self._helpers.add(self._users.start_leasing(words[0], files[0]))
        elif kind == requests.ENERGY and self._users and files:
            self._helpers.add(self._users.start_reading_counters(files[0]))

    def _configure(self, yields: str, isolates: str, *places: str) -> None:
        """Take note of how supervisors are to be.

        ``places``: folders for control groups with their purpose, such as ``memory=/sys/...``. ``isolates``: tasks
        are kept from the abstract sockets and the processes of others.
        """
        self._yields, self._isolates = yields == "1", isolates == "1"
        self._places = dict(place.split("=", 1) for place in places)
        if self._yields:
            priority.lower_own_session()
        gc.freeze()  # existing objects are shared with every supervisor: uncollected, their pages are not copied

    def _signal(self, root: int, signum: int, *only: int) -> None:
        """Signal what is below a process that is itself below this one, or ``only`` some of that."""
        with suppress(OSError):  # no file descriptor left
            if root in processes.descendants(os.getpid()) and root != self._agent_pid:
                if not only:
                    family.signal_all(root, signum)
                for pid in {*only}.intersection(processes.descendants(root) if only else ()):
                    with suppress(OSError):
                        os.kill(pid, signum)

    def _fork_supervisor(self, connection: int, claims: int) -> None:
        user = self._users.next() if self._users else None
        if self._users and not user:
            os.write(connection, pack({"trouble": "there are more slots than users for them"}))
            return
        try:
            pid = os.fork()
        except OSError as error:
            os.write(connection, pack({"trouble": f"cannot start a process: {error.strerror}"}))
            return
        if pid:
            self._supervisors.add(pid)
            if self._users:
                self._users.lend(pid)
            return
        try:
            _ignore_signals()
            self._agent.close()
            Supervisor(connection, claims, self._yields, self._places, isolates=self._isolates, user=user).run()
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
                if pid != self._agent_pid and pid not in self._supervisors | self._helpers:
                    os.kill(pid, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, options)
        except ChildProcessError:
            return False
        if pid == self._agent_pid:
            self.agent_status = status
        self._helpers.discard(pid)
        if pid in self._supervisors:
            self._supervisors.discard(pid)
            if self._users:
                self._users.reclaim(pid)
            self._groups_left.add(pid)
        self._groups_left = {
            supervisor
            for supervisor in self._groups_left
            if not ControlGroup(self._places, name_of(supervisor)).remove()
        }
        return pid != 0


def _ignore_signals() -> None:
    """Leave it to the agent to decide when it is over."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
