"""All probes of this computer, and what follows from their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from loopline_worker.presence.probe import Probe, Reading
from loopline_worker.task_group import Crew

_COARSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Sight:
    """Of the whole computer: when somebody last touched it, and who says so."""

    idle_s: float | None  # None: nobody can tell, so it is in use
    by: str
    is_fresh: bool = True  # asked for just now, not remembered

    @property
    def certain_idle_s(self) -> float:
        return self.idle_s or 0.0


def judge(readings: Sequence[Reading]) -> Sight:
    """The least idle answer wins, provided that somebody vouches for the desktop."""
    answers = [(reading.idle_s, reading) for reading in readings if reading.idle_s is not None]
    if not any(reading.sees_desktop for _, reading in answers):
        return Sight(None, "no probe can tell whether somebody is using this computer's desktop")
    idle_s, least = min(answers, key=lambda answer: answer[0])
    return Sight(idle_s, least.probe, least.is_fresh)


class Desk:
    """Looked at several times a second while tasks run, rarely else; ``stirred`` is set by probes that are told."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.stirred = asyncio.Event()
        self._probes = probes

    def listen(self, crew: Crew) -> None:
        for probe in self._probes:
            crew.start(probe.listen(self.stirred.set))

    def look(self) -> Sight:
        return judge(self.readings())

    def readings(self) -> list[Reading]:
        return [probe.look() for probe in self._probes]

    def close(self) -> None:
        for probe in self._probes:
            probe.close()


class InputClock:
    """When an input that has just been seen took place, as far as that can be known: between two looks."""

    def __init__(self) -> None:
        self._last_look: float | None = None

    def looked(self, idle_s: float, now: float, *, is_fresh: bool = True) -> float:
        """The moment of the latest input on the clock of ``now``; not before the look that did not show it.

        Some probes only know whole seconds, so that their answer alone would make us seem slower than we are. Those
        that remember what they were last told did not look when we did: an older input may be news.
        """
        moment = now - idle_s
        if is_fresh and self._last_look is not None and moment < self._last_look and idle_s < _COARSE_S:
            moment = self._last_look
        self._last_look = now
        return moment
