"""Weekly hours in plain words: ``mon-fri 18:00-08:00, sat, sun``. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_MIN = 24 * 60
_WEEK_MIN = 7 * _DAY_MIN
_ENTRY = re.compile(r"([a-z]+)(?:-([a-z]+))?(?:\s+(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d))?")
_EXPECTED = "expected hours such as 'mon-fri 18:00-08:00, sat, sun'"


@dataclass(frozen=True, slots=True)
class Hours:
    """Times at which tasks may run, by the computer's local time. Without any spans: at any time."""

    text: str = ""
    spans: tuple[tuple[int, int], ...] = ()  # minutes of the week, the end not included; may run into the next week

    @classmethod
    def parse(cls, text: str) -> Hours:
        """Parse hours. A span that ends before it begins ends on the next day. Raises ValueError if it cannot."""
        entries = [entry.strip() for entry in text.lower().split(",") if entry.strip()]
        if text.strip() and not entries:
            raise ValueError(f"{_EXPECTED}, got {text!r}")
        return cls(text.strip(), tuple(span for entry in entries for span in _spans(entry)))

    def include(self, weekday: int, minute: int) -> bool:
        """True if tasks may run at this minute of this day; ``weekday`` 0 is Monday."""
        moment = weekday * _DAY_MIN + minute
        return not self.spans or any(
            start <= moment < end or start <= moment + _WEEK_MIN < end for start, end in self.spans
        )

    def in_utc(self, ahead_min: int) -> tuple[tuple[int, int], ...]:
        """Return the spans in minutes of the week of UTC, where local time is ahead of UTC by ``ahead_min``."""
        starts = (((start - ahead_min) % _WEEK_MIN, end - start) for start, end in self.spans)
        return tuple((start, start + length) for start, length in starts)


def _spans(entry: str) -> list[tuple[int, int]]:
    found = _ENTRY.fullmatch(entry)
    if not found:
        raise ValueError(f"{_EXPECTED}, got {entry!r}")
    first = _day(found[1])
    last = _day(found[2]) if found[2] else first
    start, end = (_minute(found[3], found[4]), _minute(found[5], found[6])) if found[3] else (0, _DAY_MIN)
    end += _DAY_MIN if end <= start else 0
    days = [(first + step) % 7 for step in range((last - first) % 7 + 1)]
    return [(day * _DAY_MIN + start, day * _DAY_MIN + end) for day in days]


def _day(word: str) -> int:
    known = [place for place, day in enumerate(_DAYS) if word.startswith(day)]
    if not known:
        raise ValueError(f"{_EXPECTED}: {word!r} is no day")
    return known[0]


def _minute(hour: str, minute: str) -> int:
    at = int(hour) * 60 + int(minute)
    if int(minute) > 59 or at > _DAY_MIN:
        raise ValueError(f"{_EXPECTED}: {hour}:{minute} is no time of day")
    return at
