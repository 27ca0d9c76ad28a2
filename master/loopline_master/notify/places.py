"""Places for notifications that are being sent, and rests of receivers that gave no answer in time.

Users cannot take each other's places: each has a few, and so has each receiver. A receiver that does not answer takes
up a place until its time is over, so after that nothing is sent to it for a while. The rest doubles with each further
silence. When it is over, a single notification tries whether the receiver answers again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

AT_ONCE, AT_ONCE_EACH, AT_ONCE_USER, AT_ONCE_USER_EACH = 32, 4, 4, 2
"""Notifications at once: in all, to one receiver, of one user, and of one user to one receiver."""
FIRST_REST_S, LONGEST_REST_S = 10.0, 3600.0


@dataclass(slots=True)
class Rest:
    """The rest of a receiver."""

    until: float
    length_s: float


class SendingPlaces:
    """Counts what is being sent, and knows which receivers rest."""

    def __init__(self) -> None:
        self._all = 0
        self._to, self._of = Counter[str](), Counter[str]()
        self._between = Counter[tuple[str, str]]()
        self._rests: dict[str, Rest] = {}

    def rests_until(self, receiver: str, now: float) -> float | None:
        """Return when the receiver's rest is over; None if it does not rest."""
        rest = self._rests.get(receiver)
        return rest.until if rest is not None and rest.until > now else None

    def occupy(self, receiver: str, user: str) -> bool:
        """Take a place; False if there is none for this receiver and user."""
        most = 1 if receiver in self._rests else AT_ONCE_EACH
        if (
            self._all >= AT_ONCE
            or self._to[receiver] >= most
            or self._of[user] >= AT_ONCE_USER
            or self._between[user, receiver] >= AT_ONCE_USER_EACH
        ):
            return False
        self._count(receiver, user, 1)
        return True

    def give_back(self, receiver: str, user: str) -> None:
        """Give a place back."""
        self._count(receiver, user, -1)
        self._to, self._of, self._between = +self._to, +self._of, +self._between  # without zeros

    def _count(self, receiver: str, user: str, change: int) -> None:
        self._all += change
        self._to[receiver] += change
        self._of[user] += change
        self._between[user, receiver] += change

    def note_answer(self, receiver: str) -> None:
        """Note that the receiver answers, with any status."""
        self._rests.pop(receiver, None)

    def note_silence(self, receiver: str, now: float) -> None:
        """Note that the receiver gave no answer in time. Several at once count as one."""
        rest = self._rests.get(receiver)
        if rest is not None and rest.until > now:
            return
        length_s = FIRST_REST_S if rest is None else min(2 * rest.length_s, LONGEST_REST_S)
        self._rests[receiver] = Rest(now + length_s, length_s)
