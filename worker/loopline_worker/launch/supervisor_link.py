"""The agent's link to one supervisor: orders and requests to it, reports and output from it."""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol

from loopline_worker.launch.process_tree import PosixTree
from loopline_worker.supervisor.control_groups import ControlGroup, Places, name_of
from loopline_worker.supervisor.orders import Claims, Unpacker, pack

_PART_BYTES = 2**18


class LinkListener(Protocol):
    """Owner of the links, with callbacks for their ends."""

    def task_ended(self, tree: PosixTree, elapsed_s: float | None) -> None:
        """A task has ended. ``elapsed_s``: its run time, if measured."""

    def link_idle(self, link: SupervisorLink) -> None:
        """The supervisor has nothing to do."""

    def drop(self, link: SupervisorLink) -> None:
        """Close a link whose supervisor is gone, or is to go."""

    def retract(self) -> None:
        """Retract what is prefetched, on all links."""


class SupervisorLink:
    """Tasks queued at one supervisor, oldest first.

    ``first`` is the task it last said it was running. After ``retract()``, ``last`` is the task it runs or is about
    to start.
    """

    def __init__(
        self,
        ours: socket.socket,
        claims: Claims,
        places: Places,
        listener: LinkListener,
        signal: Callable[[int, int, Sequence[int]], int] | None = None,
        lessor: Callable[[str], socket.socket] | None = None,
    ) -> None:
        """``signal`` signals processes below one, all or some; ``lessor`` starts a lessor (users/leases.py).

        None: this process may do so itself.
        """
        ours.setblocking(False)
        self.root = 0  # whose children are its tasks: the supervisor, or the first process of its cell
        self.session = 0
        self.group = ControlGroup({}, "")
        self.hits = 0, 0  # how often all its tasks until now hit limits
        self.past_cpu_s = 0.0  # CPU time of its tasks until now
        self.task_group = 0  # that its tasks' user is alone in; 0: they run as the agent's user
        self.signal, self.lessor = signal, lessor
        self._places = places
        self._known_cells = set[int]()  # whose walls were already sent to the supervisor
        self._socket = ours
        self._claims = claims
        self._listener = listener
        self._trees: deque[PosixTree] = deque()
        self._numbers = count(1)
        self._not_offered: list[int] = []
        self._unpacker = Unpacker()
        self._unsent = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._receive)

    @property
    def first(self) -> PosixTree | None:
        """The oldest task."""
        return self._trees[0] if self._trees else None

    @property
    def last(self) -> PosixTree | None:
        """The latest task."""
        return self._trees[-1] if self._trees else None

    @property
    def started_at(self) -> float:
        """Start of the first task."""
        return self._trees[0].started_at if self._trees else math.inf

    @property
    def prefetched(self) -> int:
        """Number of tasks behind the first."""
        return len(self._trees) - 1 if self._trees else 0

    def start(self, tree: PosixTree, files: Sequence[int] = ()) -> None:
        """Have an idle supervisor start a task at once. Raises OSError if it does not take the order."""
        self._send(self._enqueue(tree), files)

    def prefetch(self, tree: PosixTree) -> None:
        """Queue a task behind the supervisor's current ones. Several are sent together."""
        self._unsent += self._enqueue(tree)
        if len(self._not_offered) == 1:
            self._loop.call_soon(self._flush)

    def retract_prefetched(self) -> None:
        """Retract what has not started, through the listener: from now on only the last of the rest may run."""
        if self.prefetched:
            self._listener.retract()

    def retract(self) -> list[PosixTree]:
        """Return the prefetched tasks that will not start any more. The first may still start if it has not."""
        if not self.prefetched:
            return []
        numbers = [*self._claims.retract(), *self._not_offered]
        self._not_offered = [number for number in numbers if number == self._trees[0].number]
        self._flush()
        first, *behind = self._trees
        retracted = [tree for tree in behind if tree.number in numbers]
        self._trees = deque([first, *(tree for tree in behind if tree.number not in numbers)])
        return retracted

    def request(self, word: str | float, number: int) -> None:
        """Send ``kill``, ``follow`` or ``confirm`` for one of the tasks, or the new time when it must have ended."""
        if self._socket.fileno() >= 0:
            self._send(pack((number, word)))

    def request_confirmation(self) -> None:
        """Have the supervisor report when the last task runs."""
        if self._trees:
            self.request("confirm", self._trees[-1].number)

    def close(self) -> None:
        """Hang up: the supervisor kills its task, and ends."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._claims.close()
            self.group.close()

    def _enqueue(self, tree: PosixTree) -> bytes:
        """Return the message with the task's order."""
        tree.link, tree.number = self, next(self._numbers)
        self._trees.append(tree)
        self._not_offered.append(tree.number)
        if tree.order.cell in self._known_cells:
            tree.order.walls = None
        self._known_cells.add(tree.order.cell)
        return pack((tree.number, tree.order.to_tuple()))

    def _flush(self) -> None:
        if self._not_offered and self._socket.fileno() >= 0:
            self._send(b"")

    def _send(self, data: bytes, files: Sequence[int] = ()) -> None:
        """Send this and everything unsent, then offer the claim tokens of the orders that arrived."""
        before, self._unsent = self._unsent, self._unsent + data
        try:
            sent = socket.send_fds(self._socket, [self._unsent], files) if files else self._socket.send(self._unsent)
        except BlockingIOError:
            if files:
                raise
            sent = 0
        except OSError:  # the supervisor was killed just now, which the reader notices
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._socket.fileno(), self._send, b"")
            return
        if before:
            self._loop.remove_writer(self._socket.fileno())
        self._claims.offer(self._not_offered)
        self._not_offered = []

    def _receive(self) -> None:
        try:
            part = self._socket.recv(_PART_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._lose()
            return
        self._unpacker.feed(part)
        while (report := self._unpacker.next()) is not None:
            self._handle(report)

    def _handle(self, report: dict[str, Any]) -> None:
        if "supervisor" in report:
            self.root, self.session, self.task_group = report["supervisor"], report["session"], report["group"]
            self.group = ControlGroup(self._places, name_of(self.root))
            return
        if "root" in report:
            self.root, self.past_cpu_s = report["root"], 0.0
            self.group.allow_for_cell(report["own_bytes"])
            return
        self.hits = report.pop("hits", self.hits)
        self.past_cpu_s += report.get("cpu_s", 0.0)
        is_spent = report.pop("is_spent", False)
        tree = self.first
        if tree and tree.handle(report):
            if is_spent:
                self.retract_prefetched()
            self._end(tree, report, is_spent)

    def _end(self, tree: PosixTree, report: dict[str, Any], is_spent: bool) -> None:
        """Remove an ended task; the next one, if there is one, runs in its slot."""
        self._trees.popleft()
        self._listener.task_ended(tree, report.get("elapsed_s"))
        if self._trees:
            self._trees[0].started(tree)
        tree.end(report)
        if is_spent:
            self._listener.drop(self)
        elif not self._trees:
            self._listener.link_idle(self)

    def _lose(self) -> None:
        """The supervisor was killed together with its current task. An end it had not yet delivered is lost."""
        self.retract_prefetched()
        self.close()
        trees, self._trees = self._trees, deque()
        for tree in trees:
            tree.lose()
        self._listener.drop(self)
