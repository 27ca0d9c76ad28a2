"""Pressure-stall information: for what share of the last ten seconds something had to wait. Linux only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path("/proc/pressure")


@dataclass(frozen=True, slots=True)
class Pressure:
    """Percentages; None where the kernel does not say. Tasks that wait behind the owner are part of them."""

    cpu: float | None = None
    memory: float | None = None
    io: float | None = None

    @classmethod
    def now(cls, folder: Path = _FOLDER) -> Pressure:
        return cls(*(_some(folder / name) for name in ("cpu", "memory", "io")))


def _some(file: Path) -> float | None:
    """Of ``some avg10=0.04 avg60=0.10 ...``, the first number."""
    try:
        fields = file.read_text().split()
        return float(fields[1].removeprefix("avg10="))
    except (OSError, IndexError, ValueError):
        return None
