"""The users that tasks run as: one for each slot, from a list that the administrator made.

A task can neither read nor signal what belongs to another slot, to the agent or to the computer's owner.
What it makes belongs to the group of its user, which the agent is in.
"""

from __future__ import annotations

import math
import os
import pwd
import signal
import time
from contextlib import suppress

from loopline_worker.supervisor.users import credentials, folders, leases, package_counters
from loopline_worker.supervisor.users.credentials import TaskUser

_MOST_USERS = 1000
_COUNTERS_EVERY_S = 5.0


def find(names: str) -> list[TaskUser]:
    """Return the users PREFIX1, PREFIX2 and so on, or those of a range of numbers (FIRST-LAST)."""
    first, dash, last = names.partition("-")
    if dash and first.isdigit() and last.isdigit():
        return [TaskUser(uid, uid) for uid in range(int(first), min(int(last), int(first) + _MOST_USERS) + 1)]
    found: list[TaskUser] = []
    with suppress(KeyError):
        while len(found) < _MOST_USERS:
            entry = pwd.getpwnam(f"{names}{len(found) + 1}")
            found.append(TaskUser(entry.pw_uid, entry.pw_gid))
    return found


class SlotUsers:
    """The users, and which supervisor has which."""

    def __init__(self, users: list[TaskUser]) -> None:
        self._by_group = {user.gid: user for user in users}
        self._free = list(reversed(users))
        self._lent: dict[int, TaskUser] = {}  # by supervisor
        self._counters_read_at = -math.inf

    def kill_leftovers(self) -> None:
        """Kill what runs as a user without a slot: an earlier zygote may have started it."""
        for user in self._free:
            kill_all_of(user)

    def next(self) -> TaskUser | None:
        """Return the user of the next supervisor; None if there is none left."""
        return self._free[-1] if self._free else None

    def lend(self, supervisor: int) -> None:
        """Give the next user to a supervisor."""
        self._lent[supervisor] = self._free.pop()

    def reclaim(self, supervisor: int) -> None:
        """Free the user of a supervisor that has ended; processes of that user are killed."""
        if user := self._lent.pop(supervisor, None):
            kill_all_of(user)
            self._free.append(user)

    def hand_over(self, folder: str) -> None:
        """Let the agent read and remove what the users left in the lent folders that are here, or below."""
        for place, names, _ in os.walk(folder):
            if user := self._user_of(place):
                names.clear()
                folders.hand_over(place, user)

    def start_measuring(self, folder: str, answer: int) -> int:
        """Start measuring a task's folder as its user, who answers in an open file. Return the process id, or 0."""
        with suppress(OSError):
            if user := self._user_of(folder):
                return folders.start_measuring(folder, user, answer)
        return 0

    def start_leasing(self, folder: str, connection: int) -> int:
        """Start the process that leases files in a task's folder as its user. Return its process id, or 0."""
        with suppress(OSError):
            if user := self._user_of(folder):
                return leases.start(user, connection)
        return 0

    def start_reading_counters(self, answer: int) -> int:
        """Start reading energy counters, which root may read, into an open file. Return the process id, or 0.

        An agent that asks again within 5 s gets none: frequent readings reveal what other programs compute.
        """
        now = time.monotonic()
        if now - self._counters_read_at < _COUNTERS_EVERY_S:
            return 0
        self._counters_read_at = now
        return package_counters.start_reading(answer)

    def _user_of(self, folder: str) -> TaskUser | None:
        """Return the borrower of a folder, by its group; None if there is none, or the folder is gone."""
        with suppress(OSError):
            return self._by_group.get(os.stat(folder, follow_symlinks=False).st_gid)  # noqa: PTH116
        return None


def kill_all_of(user: TaskUser) -> None:
    """Kill all processes of a user, in one call of the user's own so that none can fork ahead of it."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        credentials.become(user)
        if os.getresuid() == (user.uid,) * 3 and not credentials.has_any():
            os.kill(-1, signal.SIGKILL)
    finally:
        os._exit(0)
