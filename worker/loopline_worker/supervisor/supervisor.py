"""The supervisor of one slot: it starts task after task, and ensures that no process of a task outlives the task.

It talks with the agent over its own connection (``order_server.py``), and identifies itself first. When the
agent hangs up, or dies, the supervisor kills its task and ends.

Once a cell has had its first task, the first process of the cell serves the agent in place of the supervisor
(``walls/deputy.py``), which sleeps then: a task wakes one process instead of two. The connection comes back
with an order that is for another cell. Where tasks have a user of their own, the supervisor keeps it: no process of
that user is to have it.

What a task inherits is set once, in the supervisor: the lowest priority, the control groups (see ``spawn.py``).
"""

from __future__ import annotations

import os
from contextlib import suppress

from loopline_worker.supervisor import priority, subreaper
from loopline_worker.supervisor.control_groups import ControlGroup, name_of
from loopline_worker.supervisor.order_server import OrderServer
from loopline_worker.supervisor.orders import Unpacker
from loopline_worker.supervisor.selector import Selector
from loopline_worker.supervisor.spawn import disable_core_dumps
from loopline_worker.supervisor.task_processes import TaskProcesses
from loopline_worker.supervisor.users import credentials, folders
from loopline_worker.supervisor.walls import landlock
from loopline_worker.supervisor.walls.cell import Cell
from loopline_worker.supervisor.walls.connect_filter import ConnectFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from loopline_worker.supervisor.control_groups import Places
    from loopline_worker.supervisor.order_server import TaskRunner
    from loopline_worker.supervisor.orders import Needs, TaskOrder
    from loopline_worker.supervisor.users.credentials import TaskUser

_UMASK = 0o007
"""Of tasks with a user of their own: what they make is for their group, too, which the agent is in."""


class Supervisor(OrderServer):
    """Serves one connection of the agent until that is closed, or has its cell do so."""

    def __init__(
        self,
        connection: int,
        claims: int,
        yields: bool,
        places: Places,
        *,
        isolates: bool = False,
        user: TaskUser | None = None,
    ) -> None:
        """``user``: whom tasks run as; None: the user of this process."""
        group = ControlGroup(places, name_of(os.getpid()))
        super().__init__(connection, claims, group, TaskProcesses(Selector(), user))
        self._yields = yields
        self._isolates = isolates
        self._user = user
        self._shared = folders.SharedFolders(user) if user else None
        self._filter = ConnectFilter(user)
        self._cell = Cell(user)
        self._needs: Needs = None, None, None, None, None  # of the last task

    def run(self) -> None:
        """Serve orders until the agent hangs up."""
        subreaper.adopt_orphans()
        try:
            self._set_up()
        except OSError as error:
            self._send({"trouble": f"cannot start a process: {error.strerror}"})
            return
        group = self._user.gid if self._user else 0
        self._send({"supervisor": os.getpid(), "session": os.getsid(0), "group": group})
        self.serve()
        self._cell.close()
        self._folders.clear()

    def _set_up(self) -> None:
        """Set everything that tasks inherit."""
        if self._user:
            credentials.join([self._user.gid])
            os.umask(_UMASK)
        disable_core_dumps()
        if self._yields:
            priority.yield_to_owner()
        self._group.make()
        self._group.enter()
        if self._isolates:
            self._filter.install()

    # The task.

    def prepare(self, order: TaskOrder, files: list[int]) -> TaskRunner:
        """Set the limits, and put up the order's walls. Raises OSError."""
        self._open_to_user(files)
        if self._isolates and order.paths is None:  # else its own rules do; two of them would forbid some renames
            landlock.isolate()
            self._isolates = False
        runner: TaskRunner = self._own
        if order.cell:
            runner = self._prepared_cell(order)
        else:
            os.chdir(order.folder)
        self._provide(order.needs())
        return runner

    def lend(self, folder: str) -> None:
        """Let the user that tasks run as use a folder. Raises OSError."""
        if self._user:
            folders.lend(folder, self._user.gid)

    def leave_nothing(self, order: TaskOrder, folder_is_left: bool) -> None:
        """Let the agent have what a task's user made in its folder, and remove what it made beside that."""
        if self._user and folder_is_left:
            folders.hand_over(order.folder, self._user)
        if self._shared and not order.cell and order.paths is None:
            self._shared.clear()

    def look(self, ready: list[int]) -> None:
        """Record the state of the task."""
        if self._runner is not self._cell:
            super().look(ready)
        elif self._cell.file in ready and self._cell.read():
            self._send({"runs": True})

    def _watch(self) -> None:
        """Wait until the task has ended or has to."""
        cell = self._cell.file if self._runner is self._cell and not self._cell.has_ended else None
        if cell is not None:
            self._selector.watch(cell)
        super()._watch()
        if cell is not None:
            self._selector.unwatch(cell)

    def _open_to_user(self, files: list[int]) -> None:
        """Let the task open by name (/dev/stderr) what it has inherited."""
        if self._user:
            for file in files:
                with suppress(OSError):  # a socket, which is never opened
                    os.fchmod(file, 0o622)

    def _provide(self, needs: Needs) -> None:
        """Set what a task needs of its supervisor. Raises OSError."""
        self._group.limit(*needs[:2])
        self._filter.open_hosts, self._filter.reaches, self._filter.folders = needs[2:]
        self._needs = needs

    def _prepared_cell(self, order: TaskOrder) -> Cell:
        """Return the cell with the order's walls. Tell the agent which process has its tasks. Raises OSError."""
        if not self._cell.is_for(order):
            self._cell.make(order.cell, self._walls[order.cell], has_gpus=order.has_gpus)
            self._group.allow_for_cell(self._cell.own_bytes)
            self._send({"root": self._cell.root, "own_bytes": self._cell.own_bytes})
        return self._cell

    # The agent.

    def _next_order(self) -> TaskOrder | None:
        """Wait for an order that is to be started from here; None once the agent has hung up."""
        while self._runner is self._cell and self._cell.is_up and not self._user and not self._is_over:
            if order := self._have_cell_serve():
                return order
        return super()._next_order()

    def _have_cell_serve(self) -> TaskOrder | None:
        """Have the cell serve the agent for a while. Return the order that it has claimed and cannot run.

        If the cell dies now, its claims are unknown, so exit as if killed.
        """
        self._flush()
        self._folders.clear()
        try:
            counters, own_bytes = self._group.open_counters()
            files = [self._connection, self._claims, *counters.values(), *self._files]
            self._cell.deputize((self.state(), self._needs, list(counters), own_bytes), files)
        except OSError:
            self._cell.close()
            return None
        _close(self._files)
        try:
            state, may_go_on, given = self._cell.await_return(self._provide)
        except OSError:
            self._is_over = True
            return None
        self._unpacker = Unpacker()
        if not may_go_on:
            self._cell.close()
        return self.resume(state, given)


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
