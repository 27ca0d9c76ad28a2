"""Serving the agent's orders: one task after the other, in the process that has the agent's connection and the
claims.

That is the supervisor of a slot, or in its cell the deputy of it (``walls/deputy.py``), one of the two at a time.

In: orders, each a task with a number, perhaps with two open files for the task to write to; then requests for one
of them: ``kill``, ``follow`` (pass on output as it comes), ``confirm`` (report that it runs), and a number, the new
time when it must have ended. The server keeps that time even if the agent hangs. After an order comes its claim
token (see ``orders.py``): the order starts once it is claimed here. Of several prefetched orders, the next starts as
soon as nothing of the last is left.

Out: ``runs`` if that was requested; the task's output as ``stdout`` and ``stderr``; and when nothing of the task is
left, the report of its end with the last output. The report of a task that could not be started has ``errno`` and
``reason``, or ``trouble``. It waits a moment for the report of the next task.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time
from functools import partial

from loopline_worker.supervisor.control_groups import breach
from loopline_worker.supervisor.intervals import END_BATCH_S, KEEP_FOLDER_S, LOOK_EVERY_S, OUTPUT_QUIET_S
from loopline_worker.supervisor.orders import Breach, TaskOrder, Unpacker, claim, pack
from loopline_worker.supervisor.pump import Pump
from loopline_worker.supervisor.requests import FILES
from loopline_worker.supervisor.scratch_folders import ScratchFolders

_NEVER = float("inf")
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from loopline_worker.supervisor.control_groups import ControlGroup, Hits
    from loopline_worker.supervisor.task_processes import TaskProcesses, TreeEnd

    State = tuple[
        int, bytes, dict[int, tuple[Any, ...]], dict[int, list[str]], tuple[int, int, int], Hits, bool, bool
    ]

    class TaskRunner(Protocol):
        """This process, or a cell, which runs a task."""

        @property
        def has_ended(self) -> bool:
            """True once it may be asked for the task's end."""

        def start(self, order: TaskOrder, stdout: int, stderr: int) -> None:
            """Start the task. Raises OSError or ValueError if it cannot be run."""

        def confirm(self) -> bool:
            """True: the task runs."""

        def end(self, killed: bool) -> TreeEnd:
            """Return how the task ended; kill what is left of it."""


boot_s = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic
"""Returns the seconds since the computer started, with those in suspend where the system counts them."""


class OrderServer:
    """Serves the orders of one connection until that is closed. What a task needs first is for ``prepare`` to do."""

    def __init__(self, connection: int, claims: int, group: ControlGroup, own: TaskProcesses) -> None:
        """``own``: processes of tasks that this process started; ``group``: resources that the tasks have used."""
        self._agent = socket.socket(fileno=connection)
        self._connection = connection
        self._claims = claims
        self._group = group
        self._selector = own.selector
        self._selector.watch(connection)
        self._folders = ScratchFolders(self.lend)
        self._unpacker = Unpacker()
        self._orders: dict[int, TaskOrder] = {}
        self._walls: dict[int, list[str]] = {}  # brought by an order for all later ones, by number of the cell
        self._files: list[int] = []  # that came with the order
        self._to_confirm = 0  # the number of the order to report when it runs
        self._to_follow = 0  # the number of the order whose output is passed on at once
        self._to_kill = 0  # the number of the order to kill
        self._unsent = b""
        self._unsent_since = 0.0
        self._is_over = False  # the agent hung up
        self._is_spent = False
        self._hits = 0, 0
        self._own = own
        self._runner: TaskRunner = own  # of the task
        self._cpu_s = time.process_time()  # until the last task ended
        self._reset()

    def serve(self) -> None:
        """Serve orders until there is none to be served here any more."""
        while order := self._next_order():
            self._serve(order)
            self._reset()
        self._flush()

    def state(self, claimed: TaskOrder | None = None) -> State:
        """Return the state of the connection for another server, including an order claimed here."""
        orders = {number: order.to_tuple() for number, order in self._orders.items()}
        if claimed:
            orders[self._number] = claimed.to_tuple()
        requests = self._to_kill, self._to_confirm, self._to_follow
        number = self._number if claimed else 0
        return number, self._unpacker.rest, orders, self._walls, requests, self._hits, self._is_over, self._is_spent

    def resume(self, state: State, files: list[int]) -> TaskOrder | None:
        """Take over from another server, given its ``state``. Return the order that it has claimed."""
        self._number, rest, orders, self._walls, requests, self._hits, self._is_over, self._is_spent = state
        self._to_kill, self._to_confirm, self._to_follow = requests
        self._orders = {number: TaskOrder.from_tuple(order) for number, order in orders.items()}
        self._unpacker.feed(rest)
        self._files = files
        return self._orders.pop(self._number, None)

    # What differs.

    def prepare(self, order: TaskOrder, files: list[int]) -> TaskRunner:
        """Return who is to start the task, once its limits are set; it writes to ``files``. Raises OSError."""
        raise NotImplementedError

    def place(self, folder: str) -> str:
        """Return the path under which this process can make and rename a scratch folder."""
        return folder

    def lend(self, folder: str) -> None:
        """Let the user that tasks run as use a folder. Raises OSError."""

    def leave_nothing(self, order: TaskOrder, folder_is_left: bool) -> None:
        """Let the agent have what a task's user made in its folder, and remove what it made beside that."""

    def look(self, ready: list[int]) -> None:
        """Record the state of the task. ``ready``: the files that are readable."""
        if self._selector.child_ended:
            self._own.reap()

    def _reset(self) -> None:
        """Forget the last task."""
        self._number = 0
        self._is_running = False
        self._killed = False
        self._ends_at: float | None = None
        self._has_expired = False
        self._pump = Pump(self._selector, self._pass_on)

    def _serve(self, order: TaskOrder) -> None:
        """Run one task from its start to the report of its end."""
        started_s, self._ends_at = time.monotonic(), order.ends_at
        end = self._start(order)
        if not end:
            self._is_running = True
            self._watch()
            task = self._runner.end(self._killed)
            end = task.failure or self._account(task, time.monotonic() - started_s)
        end["folder_is_left"] = not (order.makes_folder and self._recycle(order.folder))
        self.leave_nothing(order, end["folder_is_left"])
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        end["overhead_s"] = end.get("overhead_s", 0.0) + self._cpu_s - before_s
        self._report_end(*self._pump.close(), end)

    # The task.

    def _start(self, order: TaskOrder) -> dict[str, Any]:
        """Start the task. Return an empty report, or the reason why it could not be started."""
        given, self._files = self._files, []
        if self._is_late():
            _close(given)
            return {"killed": True, "expired": True}
        try:
            if order.makes_folder:
                self._folders.make(self.place(order.folder))
            else:
                self.lend(order.folder)
            files = given or self._pump.open()
            self._runner = self.prepare(order, files)
        except OSError as error:
            _close(given)
            return {"trouble": f"cannot run a task here: {error}"}
        try:
            self._runner.start(order, *files)
        except (OSError, ValueError) as error:
            return {"errno": getattr(error, "errno", errno.EINVAL), "reason": _reason(error, order)}
        finally:
            _close(given)
        return {}

    def _recycle(self, folder: str) -> bool:
        """Keep a folder for the next task. False leaves it to others."""
        try:
            return self._folders.recycle(self.place(folder))
        except OSError:  # no file descriptor left
            return False

    def _watch(self) -> None:
        """Wait until the task has ended or has to. The agent may kill it itself, after it has sent that request."""
        self._handle_requests()
        quiet_s: float | None = OUTPUT_QUIET_S
        quiet_until = time.monotonic() + OUTPUT_QUIET_S
        while not self._runner.has_ended and not self._killed and not self._is_late():
            ready = self._selector.wait(
                quiet_s if self._ends_at is None else min(quiet_s or LOOK_EVERY_S, LOOK_EVERY_S)
            )
            if quiet_s is not None and (quiet_s := quiet_until - time.monotonic()) <= 0:
                quiet_s = None
                self._pump.watch()
                self._flush()
            if self._connection in ready:
                self._receive()
            self._pump.read(ready)
            self.look(ready)

    def _is_late(self) -> bool:
        """True if the task must have ended by now. The clock since boot includes time in suspend."""
        if self._ends_at is not None and boot_s() >= self._ends_at:
            self._has_expired = self._killed = True
        return self._has_expired

    def _account(self, task: TreeEnd, elapsed_s: float) -> dict[str, Any]:
        """Return the report on the task's end and its resources."""
        end: dict[str, Any] = {
            "elapsed_s": elapsed_s,
            "exit_code": os.waitstatus_to_exitcode(task.status),
            "cpu_s": task.user_s + task.system_s,
            "system_s": task.system_s,
            "peak_memory_bytes": task.peak_memory_bytes,
            "overhead_s": task.overhead_s,
        }
        if self._has_expired:
            end["expired"] = True
        if self._killed:
            end["killed"] = True
        elif task.is_lost:
            end["trouble"], end["took_down"] = "its sandbox was killed", True
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
            if isinstance(content, float):
                self._extend(number, content)
            elif isinstance(content, str):
                self._note_request(number, content)
            else:
                order = self._orders[number] = TaskOrder.from_tuple(content)
                if order.walls:
                    self._walls[order.cell] = order.walls

    def _extend(self, number: int, ends_at: float) -> None:
        if number == self._number and self._is_running:
            self._ends_at = None if ends_at == _NEVER else ends_at
        elif number in self._orders:
            self._orders[number].ends_at = ends_at

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
            self._unsent = self._sent_in_time(unsent)
        except OSError:  # the agent is gone
            self._is_over = True

    def _sent_in_time(self, unsent: bytes) -> bytes:
        """Send to the agent. Return what it has not taken by the time when the task must have ended."""
        if self._ends_at is None:
            self._agent.sendall(unsent)
            return b""
        while unsent and not self._is_late():
            try:
                unsent = unsent[self._agent.send(unsent, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                select.select([], [self._agent], [], LOOK_EVERY_S)
        return unsent


def _with_output(stdout: bytes, stderr: bytes, message: dict[str, object]) -> dict[str, object]:
    if stdout:
        message["stdout"] = stdout
    if stderr:
        message["stderr"] = stderr
    return message


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _reason(error: Exception, order: TaskOrder) -> str:
    """Return why a command cannot run. A script is called missing if it is there and its interpreter is not."""
    reason = getattr(error, "strerror", None) or str(error)
    if getattr(error, "errno", None) != errno.ENOENT or "/" not in order.command[0]:
        return reason
    try:
        with open(os.path.join(order.folder, order.command[0]), "rb") as script:  # noqa: PTH118, PTH123
            first = script.readline(256)
    except OSError:
        return reason
    if not first.startswith(b"#!"):
        return reason
    if first.endswith(b"\r\n"):
        return (
            f"{reason}: its first line ends as on Windows (CRLF), which is no interpreter's name; run dos2unix on it"
        )
    program = first[2:].decode(errors="replace").partition("\n")[0].split()
    return f"{reason}: its interpreter {''.join(program[:1])} is not here"
