"""The interface of a witness: what it says, and for how much of the computer it can speak."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """What one probe says now."""

    probe: str
    idle_s: float | None = None  # since the last input that it can see; None: it cannot tell
    sees_desktop: bool = False  # input at a screen of this computer cannot escape it
    detail: str = ""  # for people: what it went by, or why it cannot tell
    is_fresh: bool = True  # asked for just now, not remembered


class Probe(ABC):
    """One way to tell when somebody last touched this computer."""

    name: str

    @abstractmethod
    def look(self) -> Reading:
        """Cheap enough for ten times a second; never raises, never waits for long."""

    async def listen(self, on_input: Callable[[], None]) -> None:
        """For probes that are told: until cancelled, keep up with the system and call ``on_input`` at an input."""
        await asyncio.Event().wait()

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Give up what is open."""
