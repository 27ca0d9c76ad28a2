"""The interface of a probe: its reading, and how much of the computer it sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from loopline_worker.presence.waiting.routine import Routine


class Reading(NamedTuple):
    """Reading of one probe."""

    probe: str
    idle_s: float | None = None  # since the last input that it sees; None: it cannot tell
    sees_desktop: bool = False  # it sees all input at the screens of this computer
    detail: str = ""  # for people: its source, or the reason why it cannot tell
    is_fresh: bool = True  # read just now, not remembered


class Probe(ABC):
    """A way to find out when this computer was last used."""

    name: str

    @abstractmethod
    def look(self) -> Reading:
        """Return a reading within a moment, ten times a second if need be; never raises."""

    def listen(self, on_input: Callable[[], None]) -> Routine[None]:
        """Call ``on_input`` at each input that the system reports. Most probes are not notified, and end at once."""
        yield from ()

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Close open connections."""
