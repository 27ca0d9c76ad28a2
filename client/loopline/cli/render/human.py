"""Numbers as people read them."""

from __future__ import annotations

import time

from loopline_shared.rest.bodies import EnergyUse, Period

_ENERGY_SOURCES = {
    "socket": "socket",
    "package": "processor package only",
    "declared": "declared watts",
    "gpu": "GPU",
}
_UNITS = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def duration(seconds: float | None) -> str:
    """Return a duration in two units at most: ``0.4s``, ``12s``, ``3m 5s``, ``2h 10m``, ``4d 6h``, ``195y 193d``."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    place = next(place for place, (length, _) in enumerate(_UNITS) if whole >= length)
    parts: list[str] = []
    for length, unit in _UNITS[place : place + 2]:
        count, whole = divmod(whole, length)
        parts.append(f"{count}{unit}" if count or not parts else "")
    return " ".join(part for part in parts if part)


def ago(then: float | None, now: float) -> str:
    """Return how long ago a moment was."""
    return "-" if then is None else f"{duration(now - then)} ago"


def between(start: float | None, end: float | None, now: float) -> str:
    """Return how long something took, or has taken so far."""
    return "-" if start is None else duration((now if end is None else end) - start)


def period(of: Period | None, now: float) -> str:
    """Return the duration of a period, up to now if it continues."""
    return "-" if of is None else between(of.since, of.until, now)


def moment(then: float | None) -> str:
    """Return a moment in local time, with its offset from UTC."""
    return "-" if then is None else time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(then))


def clock(then: float, now: float) -> str:
    """Return a moment of the last day as its time of day, ``22:10``, and an earlier one with its date; local time."""
    return time.strftime("%H:%M" if 0 <= now - then < 86400 else "%Y-%m-%d %H:%M", time.localtime(then))


def amount(count: float) -> str:
    """Return bytes in 1000-based units: ``512 B``, ``1.5 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def energy(kwh: float) -> str:
    """Return energy in three digits: ``0.52 Wh``, ``12.3 Wh``, ``1.23 kWh``."""
    if 0 < kwh < 1e-6:
        return "<0.001 Wh"
    return f"{_digits(kwh)} kWh" if kwh >= 1 else f"{_digits(1000 * kwh)} Wh"


def energy_sources(use: EnergyUse) -> str:
    """Return how energy was found: ``processor package only, GPU``."""
    return ", ".join(words for source, words in _ENERGY_SOURCES.items() if source in use.by_source)


def grams(count: float) -> str:
    """Return a mass: ``0.32 g``, ``320 g``, ``4.1 kg``."""
    return f"{_digits(count)} g" if count < 1000 else f"{_digits(count / 1000)} kg"


def _digits(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def size(seconds: float | None) -> str:
    """Return the size of a job."""
    return "unknown" if seconds is None else duration(seconds)


def short(name: str, most: int = 24) -> str:
    """Return a name that is at most so long: of a longer one, its beginning and its end."""
    if len(name) <= most:
        return name
    end = most // 3
    return f"{name[: most - end - 1]}…{name[-end:]}"


def plural(count: int, noun: str) -> str:
    """Return a count and its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
