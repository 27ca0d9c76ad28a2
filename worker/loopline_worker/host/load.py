"""The load of this computer by other programs: the spare CPU that it leaves, pressure, and battery."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from loopline_worker.host.computer import Computer

SAMPLE_EVERY_S = 2.0
_GOOD_FOR_S = 0.25
_SMOOTH_S = 6.0
"""Time constant of the smoothing: two thirds of a change show within this time."""
_PRESSURE = Path("/proc/pressure")
_ZONES = Path("/sys/class/thermal")
_SUPPLIES = Path("/sys/class/power_supply")


class Recent:
    """A figure remembered for a moment, because reading it takes as long as all the rest of a Report."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._at = -math.inf
        self._figure = 0

    def __call__(self) -> int:
        now = time.monotonic()
        if now - self._at > _GOOD_FOR_S:
            self._figure, self._at = self._read(), now
        return self._figure


class Meter:
    """Measures the CPU time that other programs leave, smoothed; it needs our own CPU time now and then."""

    def __init__(self, computer: Computer) -> None:
        self._computer = computer
        self._last: tuple[float, float] | None = None  # when, and the CPU seconds that others had used
        self._spare_cpu: float | None = None
        self.pressure = Pressure()
        self.memory_available_bytes = Recent(computer.memory_available_bytes)

    @property
    def spare_cpu(self) -> float:
        """Spare cores; all of them before anything is measured."""
        return self._computer.cores if self._spare_cpu is None else self._spare_cpu

    def sample(self, own_cpu_s: float) -> None:
        """Measure. ``own_cpu_s``: the CPU seconds of the agent and its tasks since its start."""
        now = time.monotonic()
        self._computer.refresh()
        self.pressure = Pressure.now()
        others_cpu_s = self._computer.busy_cpu_s() - own_cpu_s
        if self._last and now > self._last[0]:
            elapsed_s = now - self._last[0]
            self._smooth(self._spare(max(0.0, others_cpu_s - self._last[1]) / elapsed_s), elapsed_s)
        self._last = (now, others_cpu_s)

    def _spare(self, others_cores: float) -> float:
        return max(0.0, min(self._computer.cores, self._computer.measured_cores - others_cores))

    def _smooth(self, spare_cpu: float, elapsed_s: float) -> None:
        weight = 1.0 if self._spare_cpu is None else 1 - math.exp(-elapsed_s / _SMOOTH_S)
        self._spare_cpu = (self._spare_cpu or 0.0) * (1 - weight) + spare_cpu * weight


@dataclass(frozen=True, slots=True)
class Pressure:
    """Percentages; None if the kernel lacks them. They include tasks that wait for the owner's programs."""

    cpu: float | None = None
    memory: float | None = None
    io: float | None = None

    @classmethod
    def now(cls, folder: Path = _PRESSURE) -> Pressure:
        """Read the current figures."""
        return cls(*(_some(folder / name) for name in ("cpu", "memory", "io")))


def _some(file: Path) -> float | None:
    """Return the first number of ``some avg10=0.04 avg60=0.10 ...``; None if it is unreadable."""
    try:
        fields = file.read_text().split()
        return float(fields[1].removeprefix("avg10="))
    except (OSError, IndexError, ValueError):
        return None


def hottest(zones: Path = _ZONES) -> float | None:
    """Return the temperature of the hottest sensor in degrees Celsius; None if the system tells none."""
    readings = [int(word) / 1000 for zone in zones.glob("thermal_zone*/temp") if (word := _word(zone)).isdigit()]
    return max(readings, default=None)


class Battery:
    """Reads the state at each call; batteries of devices such as mice do not count."""

    def __init__(self, supplies: Path = _SUPPLIES) -> None:
        self._supplies = supplies

    def is_in_use(self) -> bool:
        """True if this computer runs on its battery; False if that is not known."""
        if sys.platform == "linux":
            return _is_discharging(list(_read(self._supplies)))
        try:
            state = psutil.sensors_battery()
        except (AttributeError, OSError, RuntimeError, psutil.Error):  # not every system reports it
            return False
        return state is not None and state.power_plugged is False


def _is_discharging(supplies: list[dict[str, str]]) -> bool:
    """Judge by the mains if they are listed, otherwise by the state of the batteries."""
    mains = [supply["online"] == "1" for supply in supplies if supply["type"] == "Mains"]
    doing = {supply["status"] for supply in supplies if supply["type"] == "Battery" and supply["scope"] != "Device"}
    if any(mains) or not doing:
        return False
    if "Discharging" in doing:
        return True
    return bool(mains) and not doing & {"Charging", "Full"}  # by USB, for instance


def _read(supplies: Path) -> Iterator[dict[str, str]]:
    try:
        folders = list(supplies.iterdir())
    except OSError:
        return
    for folder in folders:
        yield {name: _word(folder / name) for name in ("type", "scope", "online", "status")}


def _word(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
