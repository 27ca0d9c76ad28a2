"""The supervisor of one slot: it starts task after task, and ensures that no process of a task outlives the task.

It talks with the agent over its own connection. In: orders, each a task with a number, perhaps with two open files
for the task to write to; then requests for one of them: ``kill``, ``follow`` (pass on output as it comes) and
``confirm`` (report that it runs). After an order comes its claim token (see ``orders.py``): the order starts once
the supervisor has claimed it. Of several prefetched orders, the next starts as soon as nothing of the last is left.
When the agent hangs up, or dies, the supervisor kills its task and ends.

Out: ``supervisor`` first, its process id; ``runs`` if that was requested; the task's output as ``stdout`` and
``stderr``; and when nothing of the task is left, the report of its end with the last output. The report of a task
that could not be started has ``errno`` and ``reason``, or ``trouble``. It waits a moment for the report of the next
task.

What a task inherits is set once, in the supervisor: the lowest priority, the control groups (see ``spawn.py``).
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from contextlib import suppress

from loopline_worker.supervisor import priority, subreaper
from loopline_worker.supervisor.control_groups import ControlGroup, breach, name_of
from loopline_worker.supervisor.intervals import END_BATCH_S, KEEP_FOLDER_S, OUTPUT_QUIET_S
from loopline_worker.supervisor.orders import Breach, TaskOrder, Unpacker, claim, pack
from loopline_worker.supervisor.pump import Pump
from loopline_worker.supervisor.requests import FILES
from loopline_worker.supervisor.scratch_folders import ScratchFolders
from loopline_worker.supervisor.selector import Selector
from loopline_worker.supervisor.spawn import disable_core_dumps
from loopline_worker.supervisor.task_processes import TaskProcesses
from loopline_worker.supervisor.users import credentials, folders
from loopline_worker.supervisor.walls import landlock
from loopline_worker.supervisor.walls.cell import Cell
from loopline_worker.supervisor.walls.connect_filter import ConnectFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from loopline_worker.supervisor.control_groups import Hits, Places
    from loopline_worker.supervisor.task_processes import TreeEnd
    from loopline_worker.supervisor.users.credentials import TaskUser

_UMASK = 0o007
"""Of tasks with a user of their own: what they make is for their group, too, which the agent is in."""


class Supervisor:
    """Serves one connection of the agent until that is closed."""

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
        self._agent = socket.socket(fileno=connection)
        self._connection = connection
        self._claims = claims
        self._yields = yields
        self._isolates = isolates
        self._user = user
        self._shared = folders.SharedFolders(user) if user else None
        self._filter = ConnectFilter(user)
        self._group = ControlGroup(places, name_of(os.getpid()))
        self._selector = Selector(connection)
        self._folders = ScratchFolders(self._lend)
        self._unpacker = Unpacker()
        self._orders: dict[int, TaskOrder] = {}
        self._files: list[int] = []  # that came with the order
        self._to_confirm = 0  # the number of the order to report when it runs
        self._to_follow = 0  # the number of the order whose output is passed on at once
        self._to_kill = 0  # the number of the order to kill
        self._unsent = b""
        self._unsent_since = 0.0
        self._is_over = False  # the agent hung up
        self._is_spent = False
        self._hits = 0, 0
        self._cell = Cell(user)
        self._own = TaskProcesses(self._selector, user)
        self._runner: TaskProcesses | Cell = self._own  # of the task
        self._cpu_s = time.process_time()  # until the last task ended
        self._reset()

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
        while order := self._next_order():
            self._serve(order)
            self._reset()
        self._cell.close()
        self._folders.clear()

    def _set_up(self) -> None:
        """Take on what every task is to inherit."""
        if self._user:
            credentials.join([self._user.gid])
            os.umask(_UMASK)
        disable_core_dumps()
        if self._yields:
            priority.yield_to_owner()
        self._group.make()
        self._group.enter()
        if self._isolates:
            landlock.isolate()
            self._filter.install()

    def _reset(self) -> None:
        """Forget the last task."""
        self._number = 0
        self._is_running = False
        self._killed = False
        self._pump = Pump(self._selector, self._pass_on)

    def _serve(self, order: TaskOrder) -> None:
        """Run one task from its start to the report of its end."""
        started_s = time.monotonic()
        end = self._start(order)
        if not end:
            self._is_running = True
            self._watch()
            task = self._runner.end(self._killed)
            end = task.failure or self._account(task, time.monotonic() - started_s)
        end["folder_is_left"] = not (order.makes_folder and self._folders.recycle(order.folder))
        self._leave_nothing(order, end["folder_is_left"])
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        end["overhead_s"] = end.get("overhead_s", 0.0) + self._cpu_s - before_s
        self._report_end(*self._pump.close(), end)

    # The task.

    def _start(self, order: TaskOrder) -> dict[str, Any]:
        """Start the task. Return an empty report, or the reason why it could not be started."""
        given, self._files = self._files, []
        try:
            if order.makes_folder:
                self._folders.make(order.folder)
            else:
                self._lend(order.folder)
            files = given or self._pump.open()
            self._open_to_user(files)
            if order.cell:
                self._runner = self._prepared_cell(order)
            else:
                os.chdir(order.folder)
                self._runner = self._own
            self._group.limit(order.memory_bytes, order.processes)
        except OSError as error:
            _close(given)
            return {"trouble": f"cannot run a task here: {error}"}
        self._filter.is_open, self._filter.reaches = order.opens_loopback, order.reaches
        self._filter.folders = [path for path, writes in order.paths.items() if writes] if order.paths else None
        try:
            self._runner.start(order, *files)
        except (OSError, ValueError) as error:
            return {"errno": getattr(error, "errno", errno.EINVAL), "reason": _reason(error)}
        finally:
            _close(given)
        return {}

    def _lend(self, folder: str) -> None:
        """Let the user that tasks run as use a folder. Raises OSError."""
        if self._user:
            folders.lend(folder, self._user.gid)

    def _leave_nothing(self, order: TaskOrder, folder_is_left: bool) -> None:
        """Let the agent have what a task's user made in its folder, and remove what it made beside that."""
        if self._user and folder_is_left:
            folders.hand_over(order.folder, self._user)
        if self._shared and not order.cell and order.paths is None:
            self._shared.clear()

    def _open_to_user(self, files: list[int]) -> None:
        """Let the task open by name (/dev/stderr) what it has inherited."""
        if self._user:
            for file in files:
                with suppress(OSError):  # a socket, which nobody opens
                    os.fchmod(file, 0o622)

    def _prepared_cell(self, order: TaskOrder) -> Cell:
        """Return the cell with the order's walls. Tell the agent which process has its tasks. Raises OSError."""
        if not self._cell.is_for(order):
            self._cell.make(order)
            self._group.allow_for_cell(self._cell.own_bytes)
            self._send({"root": self._cell.root, "own_bytes": self._cell.own_bytes})
        return self._cell

    def _watch(self) -> None:
        """Wait until the task has ended or has to. The agent may kill it itself, after it has sent that request."""
        self._handle_requests()
        cell = self._cell.file if self._runner is self._cell and not self._cell.has_ended else None
        if cell is not None:
            self._selector.watch(cell)
        quiet_s: float | None = OUTPUT_QUIET_S
        quiet_until = time.monotonic() + OUTPUT_QUIET_S
        while not self._runner.has_ended and not self._killed:
            ready = self._selector.wait(quiet_s)
            if quiet_s is not None and (quiet_s := quiet_until - time.monotonic()) <= 0:
                quiet_s = None
                self._pump.watch()
                self._flush()
            if self._connection in ready:
                self._receive()
            self._pump.read(ready)
            if cell in ready and self._cell.read():
                self._send({"runs": True})
            elif cell is None and self._selector.child_ended:
                self._own.reap()
        if cell is not None:
            self._selector.unwatch(cell)

    def _account(self, task: TreeEnd, elapsed_s: float) -> dict[str, Any]:
        """Return the report of how the task ended and what it used."""
        end: dict[str, Any] = {
            "elapsed_s": elapsed_s,
            "exit_code": os.waitstatus_to_exitcode(task.status),
            "cpu_s": task.user_s + task.system_s,
            "system_s": task.system_s,
            "peak_memory_bytes": task.peak_memory_bytes,
            "overhead_s": task.overhead_s,
        }
        if self._killed:
            end["killed"] = True
        elif task.is_lost:
            end["trouble"] = "its sandbox was killed"
        if task.strays:
            end["strays"] = task.strays
        try:
            hits, self._is_spent = self._group.hits(), self._group.is_spent()
        except OSError:  # no file descriptor left
            hits = self._hits
        self._add_breach(task.status, hits, end)
        if self._is_spent:
            end["is_spent"] = True  # the next task goes to another supervisor
        return end

    def _add_breach(self, status: int, hits: Hits, end: dict[str, Any]) -> None:
        """Add the limit that a failed task hit, and how often limits were hit if that has changed."""
        before, self._hits = self._hits, hits
        if before != hits:
            end["hits"] = hits
        if not status:
            return
        hit = breach(before, hits)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ:
            hit = Breach.SCRATCH
        if hit:
            end["breach"] = hit.value

    # The agent.

    def _next_order(self) -> TaskOrder | None:
        """Wait for the next order and claim it; None once the agent has hung up.

        If the agent hangs up at the same moment, the task starts and is then killed.
        """
        while not self._is_over:
            if not self._is_spent and (order := self._claim()):
                return order
            self._await_orders()
        return None

    def _await_orders(self) -> None:
        """Wait until there is an order to claim or a message to read; tidy up if nothing comes."""
        if not self._is_spent:
            self._selector.watch(self._claims)
        ready = self._selector.wait(self._pause_s())
        if not self._is_spent:
            self._selector.unwatch(self._claims)
        if self._connection in ready:
            self._receive()
        elif not ready and not self._selector.child_ended:
            self._tidy_up()

    def _pause_s(self) -> float | None:
        if self._unsent:
            return 0.0
        return KEEP_FOLDER_S if self._folders.has_spare else None

    def _tidy_up(self) -> None:
        """Send what is unsent, or else remove the spare folder: there is no order."""
        if self._unsent:
            self._flush()
        else:
            self._folders.clear()

    def _claim(self) -> TaskOrder | None:
        """Claim the next order; None if the agent has just retracted it."""
        self._number = number = claim(self._claims)
        if not number:
            return None
        while number not in self._orders and not self._is_over:
            if self._selector.is_readable(self._connection):
                self._receive()
            else:  # it will not come, and waiting for it would ignore all else
                self._send({"trouble": f"order {number} was to start and is not there", "is_spent": True})
                self._is_over = True
        order = self._orders.get(number)
        self._orders = {later: order for later, order in self._orders.items() if later > number}
        return order

    def _receive(self) -> None:
        try:
            part, files, _, _ = socket.recv_fds(self._agent, 65536, FILES)
        except OSError:
            part, files = b"", []
        for file in files:
            os.set_inheritable(file, False)
        self._files += files
        self._unpacker.feed(part)
        if not part:
            self._is_over = self._killed = True
        while (message := self._unpacker.next()) is not None:
            number, content = message
            if isinstance(content, str):
                self._note_request(number, content)
            else:
                order = self._orders[number] = TaskOrder.from_tuple(content)
                self._cell.learn(order)

    def _note_request(self, number: int, request: str) -> None:
        if request == "kill":
            self._to_kill = number
        elif request == "confirm":
            self._to_confirm = number
        elif request == "follow":
            self._to_follow = number
        if self._is_running:
            self._handle_requests()

    def _handle_requests(self) -> None:
        """Do what the agent requested for the task that runs; requests for earlier ones no longer matter."""
        if self._to_kill == self._number:
            self._killed = not self._runner.has_ended
        if self._to_confirm == self._number:
            self._to_confirm = 0
            if self._runner.confirm():
                self._send({"runs": True})
        if self._to_follow == self._number:
            self._to_follow = 0
            self._pump.follow()

    def _report_end(self, stdout: bytes, stderr: bytes, end: dict[str, Any]) -> None:
        """Send the report now, or together with the next task's if the oldest unsent report may wait."""
        now = time.monotonic()
        if not self._unsent:
            self._unsent_since = now
        self._unsent += pack(_with_output(stdout, stderr, end))
        if now >= self._unsent_since + END_BATCH_S:
            self._flush()

    def _pass_on(self, stdout: bytes, stderr: bytes) -> None:
        self._send(_with_output(stdout, stderr, {}))

    def _send(self, message: dict[str, object]) -> None:
        self._unsent += pack(message)
        self._flush()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, b""
        if not unsent:
            return
        try:
            self._agent.sendall(unsent)
        except OSError:  # the agent is gone
            self._is_over = True


def _with_output(stdout: bytes, stderr: bytes, message: dict[str, object]) -> dict[str, object]:
    if stdout:
        message["stdout"] = stdout
    if stderr:
        message["stderr"] = stderr
    return message


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
