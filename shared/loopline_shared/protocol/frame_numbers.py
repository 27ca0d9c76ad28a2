"""Numbers of frames on a link: each end counts what it sends, and checks what comes.

The scheduler numbers the Assigns that follow from its steps. Between them the master answers Reports that bring no
news, of which the scheduler never hears. The worker sees all Assigns in one row of numbers, the scheduler its own in
another. OutgoingNumbers translates.
"""

from __future__ import annotations

from collections import deque

from loopline_shared.errors import ProtocolError

ANSWER = 0
"""Instead of the scheduler's number: this Assign but answers a Report."""
_MAX_UNSEEN = 100


class IncomingNumbers:
    """Check of the numbers of incoming frames."""

    def __init__(self) -> None:
        self.last = 0

    def is_new(self, seq: int) -> bool:
        """True if it is the next; False for a duplicate. Raises ProtocolError if frames before it were lost."""
        if seq > self.last + 1:
            raise ProtocolError(f"frame {seq} came after frame {self.last}: frames were lost")
        if seq <= self.last:
            return False
        self.last = seq
        return True


class OutgoingNumbers:
    """Numbers of Assigns: the scheduler's, and those that the worker sees."""

    def __init__(self) -> None:
        self._last = 0  # that the worker sees
        self._answers = 0  # sent so far
        self._unseen: deque[int] = deque()  # those of them that the worker has not seen, by the number that it sees

    @property
    def may_answer(self) -> bool:
        """False if the worker leaves many answers unseen."""
        return len(self._unseen) < _MAX_UNSEEN

    def number(self, seq: int) -> int:
        """Return the number that the worker sees of the next Assign.

        Where one of the scheduler's is missing before it, one is missing to the worker, too.
        """
        if seq == ANSWER:
            self._answers += 1
            self._last += 1
            self._unseen.append(self._last)
        else:
            self._last = seq + self._answers
        return self._last

    def seen(self, number: int) -> int:
        """Return the scheduler's number of its last Assign that a worker has seen which has seen ``number``."""
        while self._unseen and self._unseen[0] <= number:
            self._unseen.popleft()
        return max(0, number - (self._answers - len(self._unseen)))
