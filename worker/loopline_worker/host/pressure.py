"""Pressure-stall information: the share of the last ten seconds in which something had to wait. Linux only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path("/proc/pressure")


@dataclass(frozen=True, slots=True)
class Pressure:
    """Percentages; None if the kernel lacks them. They include tasks that wait for the owner's programs."""

    cpu: float | None = None
    memory: float | None = None
    io: float | None = None

    @classmethod
    def now(cls, folder: Path = _FOLDER) -> Pressure:
        """Read the current figures."""
        return cls(*(_some(folder / name) for name in ("cpu", "memory", "io")))


def _some(file: Path) -> float | None:
    """Return the first number of ``some avg10=0.04 avg60=0.10 ...``; None if it is unreadable."""
    try:
        fields = file.read_text().split()
        return float(fields[1].removeprefix("avg10="))
    except (OSError, IndexError, ValueError):
        return None
