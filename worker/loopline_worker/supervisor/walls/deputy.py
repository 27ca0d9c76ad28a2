"""The deputy of a supervisor in its cell: it serves the agent, so that a task wakes one process in place of two.

It is in the first process of the cell (``cell_init.py``). What only the supervisor can set, it asks for: other limits
than the last task's, other computers to connect to. No task reads what this process has open, and so the agent's
connection: it has powers that they do not, and hands nothing on to them.
"""

from __future__ import annotations

import errno
import os
import resource
import socket

from loopline_worker.supervisor.control_groups import ControlGroup
from loopline_worker.supervisor.order_server import OrderServer
from loopline_worker.supervisor.orders import Unpacker, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loopline_worker.supervisor.order_server import State, TaskRunner
    from loopline_worker.supervisor.orders import Needs, TaskOrder
    from loopline_worker.supervisor.task_processes import TaskProcesses
    from loopline_worker.supervisor.walls.view import View

    Errand = tuple[State, Needs, list[str], int]

_SET_FOR_EACH = (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"]


class Deputy(OrderServer):
    """Serves the orders of one cell until there is another, or the cell is used up, or the agent hangs up."""

    def __init__(self, cell: int, errand: Errand, files: list[int], processes: TaskProcesses, view: View) -> None:
        """``cell``: its number. ``files``: the connection, the claims, the counters, and those of an order to come.

        ``errand``: the state of the connection, what has been provided, the names of the counters, and the group's
        memory that is not the tasks'.
        """
        self._cell = cell
        self._needs: Needs | None  # that are provided for; None: unknown
        state, self._needs, counted, own_bytes = errand
        connection, claims, *others = files
        self._counters = others[: len(counted)]
        group = ControlGroup({}, "")
        group.adopt_counters(dict(zip(counted, self._counters, strict=True)), own_bytes)
        super().__init__(connection, claims, group, processes)
        self.resume(state, others[len(counted) :])
        self._view = view
        self._around: dict[str, int] = {}  # open folders, by path
        self._is_used_up = False
        self._claimed: TaskOrder | None = None  # for another cell

    def run(self, supervisor: socket.socket, before: object) -> tuple[State, bool, list[int]]:
        """Serve. Return the state of the connection, whether the cell may go on, and the files of the order to come.

        ``before``: passed on; None if no task can change it. Raises OSError if the supervisor has ended.
        """
        self._supervisor, self._before = supervisor, before
        self.serve()
        self._folders.clear()
        self._selector.unwatch(self._connection)
        self._agent.close()
        for file in (self._claims, *self._counters, *self._around.values()):
            os.close(file)
        return self.state(self._claimed), not self._is_used_up, self._files

    def prepare(self, order: TaskOrder, files: list[int]) -> TaskRunner:
        """Have the supervisor set what the task needs, if that is another than the last; show the task its files."""
        if (needs := order.needs()) != self._needs:
            self._have_provided(needs)
        self._view.show_to(order)
        return self._own

    def place(self, folder: str) -> str:
        """Return the path of a scratch folder in the cell, which this process may see no more of than a task."""
        parent, _, name = folder.rpartition("/")
        if parent not in self._around:
            self._around[parent] = self._view.open_around(folder)
        return f"/proc/self/fd/{self._around[parent]}/{name}"

    def _next_order(self) -> TaskOrder | None:
        if self._is_used_up:
            return None
        order = super()._next_order()
        if order and order.cell != self._cell:
            self._claimed = order
            return None
        return order

    def _serve(self, order: TaskOrder) -> None:
        super()._serve(order)
        self._is_used_up = self._before is not None and handed_on() != self._before

    def _have_provided(self, needs: Needs) -> None:
        """Have the supervisor set what a task needs, and wait until it has. Raises OSError."""
        self._needs = None
        self._supervisor.sendall(pack({"needs": needs}))
        unpacker = Unpacker()
        while (answer := unpacker.next()) is None:
            part = self._supervisor.recv(65536)
            if not part:
                raise OSError(errno.EPIPE, "the supervisor has ended")
            unpacker.feed(part)
        if answer["trouble"]:
            raise OSError(errno.EPERM, answer["trouble"])
        self._needs = needs


def handed_on() -> object:
    """Return what a program inherits and any process of the same user can change."""
    limits = [resource.getrlimit(kind)[kind in _SET_FOR_EACH :] for kind in _LIMITS]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0)
