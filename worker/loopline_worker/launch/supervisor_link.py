"""The agent's line to one guard: orders and words there, news and output back."""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from loopline_worker.supervisor.claims import Tickets
from loopline_worker.supervisor.control_groups import Group, Places, name_of
from loopline_worker.supervisor.framing import Unpacker, pack

if TYPE_CHECKING:
    from loopline_worker.launch.process_tree import PosixTree

_PART_BYTES = 2**18


class Keeper(Protocol):
    """Who has the line."""

    def ended(self, tree: PosixTree, elapsed_s: float | None) -> None: ...

    def freed(self, line: Line) -> None:
        """The guard has nothing to do."""

    def part(self, line: Line) -> None:
        """It is gone, or is to go."""

    def recall(self) -> None:
        """Have all lines ``take_back`` what is lined up."""


class Line:
    """The guard begins one tree after the other of those that it was given. The first is the one that it is at, as
    far as it has said; once what is lined up was held back, the last is the one that it is at or about to begin.
    """

    def __init__(self, ours: socket.socket, tickets: Tickets, places: Places, keeper: Keeper) -> None:
        ours.setblocking(False)
        self.guard = 0  # its process, once it has said so
        self.session = 0
        self.group = Group({}, "")
        self.hits = 0, 0  # of limits, by all its tasks until now
        self.past_cpu_s = 0.0  # of its tasks until now
        self._places = places
        self._socket = ours
        self._tickets = tickets
        self._keeper = keeper
        self._trees: deque[PosixTree] = deque()
        self._numbers = count(1)
        self._unticketed: list[int] = []
        self._heard = Unpacker()
        self._unsent = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._receive)

    @property
    def first(self) -> PosixTree | None:
        return self._trees[0] if self._trees else None

    @property
    def last(self) -> PosixTree | None:
        return self._trees[-1] if self._trees else None

    @property
    def began_at(self) -> float:
        """When the first did."""
        return self._trees[0].began_at if self._trees else math.inf

    @property
    def lined_up(self) -> int:
        """How many are to begin after the first."""
        return max(0, len(self._trees) - 1)

    def begin(self, tree: PosixTree, files: Sequence[int] = ()) -> None:
        """At once: the guard is free. OSError where it does not take it."""
        self._send(self._taken(tree), files)

    def line_up(self, tree: PosixTree) -> None:
        """It begins after those that the guard has; several are sent together."""
        self._unsent += self._taken(tree)
        if len(self._unticketed) == 1:
            self._loop.call_soon(self._flush)

    def hold_back(self) -> None:
        """Only the last that is left may run from now on: what has not begun goes back to who lined it up."""
        if self.lined_up:
            self._keeper.recall()

    def take_back(self) -> list[PosixTree]:
        """What is lined up, and does not begin any more; the first may do so still, where it has not yet."""
        if not self.lined_up:
            return []
        numbers = [*self._tickets.take_back(), *self._unticketed]
        self._unticketed = [number for number in numbers if number == self._trees[0].number]
        self._flush()
        first, *behind = self._trees
        taken = [tree for tree in behind if tree.number in numbers]
        self._trees = deque([first, *(tree for tree in behind if tree.number not in numbers)])
        return taken

    def say(self, word: str, number: int) -> None:
        """``kill`` and the like, of one of its trees."""
        if self._socket.fileno() >= 0:
            self._send(pack((number, word)))

    def ask(self) -> None:
        """To be told when the last of its trees runs."""
        if self._trees:
            self.say("ask", self._trees[-1].number)

    def close(self) -> None:
        """The guard kills what it has, and ends."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._tickets.close()
            self.group.close()

    def _taken(self, tree: PosixTree) -> bytes:
        """What the guard is told of it."""
        tree.line, tree.number = self, next(self._numbers)
        self._trees.append(tree)
        self._unticketed.append(tree.number)
        return pack((tree.number, tree.order.to_tuple()))

    def _flush(self) -> None:
        if self._unticketed and self._socket.fileno() >= 0:
            self._send(b"")

    def _send(self, data: bytes, files: Sequence[int] = ()) -> None:
        """With all that was not sent yet; tickets once their orders are there."""
        before, self._unsent = self._unsent, self._unsent + data
        try:
            sent = socket.send_fds(self._socket, [self._unsent], files) if files else self._socket.send(self._unsent)
        except BlockingIOError:
            if files:
                raise
            sent = 0
        except OSError:  # it was killed just now, which the reader notices
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._socket.fileno(), self._send, b"")
            return
        if before:
            self._loop.remove_writer(self._socket.fileno())
        self._tickets.put(self._unticketed)
        self._unticketed = []

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
        self._heard.feed(part)
        while (news := self._heard.next()) is not None:
            self._heed(news)

    def _heed(self, news: dict[str, Any]) -> None:
        if "guard" in news:
            self.guard, self.session = news["guard"], news["session"]
            self.group = Group(self._places, name_of(self.guard))
            return
        self.hits = news.pop("hits", self.hits)
        self.past_cpu_s += news.get("cpu_s", 0.0)
        is_spent = news.pop("is_spent", False)
        tree = self.first
        if tree and tree.heed(news):
            if is_spent:
                self.hold_back()
            self._end(tree, news, is_spent)

    def _end(self, tree: PosixTree, news: dict[str, Any], is_spent: bool) -> None:
        """Its place is the next one's, if there is one."""
        self._trees.popleft()
        self._keeper.ended(tree, news.get("elapsed_s"))
        if self._trees:
            self._trees[0].begins(tree)
        tree.end(news)
        if is_spent:
            self._keeper.part(self)
        elif not self._trees:
            self._keeper.freed(self)

    def _lose(self) -> None:
        """It was killed, and with it what it was at; if it had said of an end, that is lost too."""
        self.hold_back()
        self.close()
        trees, self._trees = self._trees, deque()
        for tree in trees:
            tree.lose()
        self._keeper.part(self)
