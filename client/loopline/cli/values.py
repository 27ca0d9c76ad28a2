"""Values of options and job files, as people write them. Pure; a ValueError tells what was expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

RangeValues = dict[str, list[int]]
Value = str | int | float

MAX_INTEGER = 2**53  # largest integer that every JSON reader keeps exact; larger ones stay text

_RANGE = re.compile(r"(-?\d{1,15})\.\.(-?\d{1,15})(?::(-?\d{1,15}))?")
_ARRAY = re.compile(r"(\d{1,15})-(\d{1,15})(?::(\d{1,15}))?")
_LIKE_A_RANGE = re.compile(r"-?[\d.]+\.\.-?[\d.]+(:.*)?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ITEM = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^,"']*?))\s*(?=,|$)""")
_MEASURE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*")
_MEASURES = re.compile(rf"(?:{_MEASURE.pattern})+")

_SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    _BYTES |= {_letter: 1000**_power, f"{_letter}b": 1000**_power}
    _BYTES |= {f"{_letter}i": 1024**_power, f"{_letter}ib": 1024**_power}


def parameter(text: str) -> tuple[str, RangeValues | list[Value]]:
    """Read ``seed=1..100``, ``seed=1..100:5`` or ``lr=0.1,0.01``; a quoted value stays text, commas and all."""
    name, _, values = (part.strip() for part in text.partition("="))
    if not (name and values):
        raise ValueError(f"expected NAME=VALUES such as seed=1..100 or lr=0.1,0.01, got {text!r}")
    if bounds := _RANGE.fullmatch(values):
        return name, _range(bounds)
    if _LIKE_A_RANGE.fullmatch(values):
        raise ValueError(f"a range is of whole numbers, such as 1..100 or 1..100:5, got {values!r}")
    return name, list(_items(values))


def array(text: str) -> RangeValues:
    """Read ``1-1000`` or ``1-1000:2``, the end included."""
    if bounds := _ARRAY.fullmatch(text.strip()):
        return _range(bounds)
    raise ValueError(f"expected FIRST-LAST or FIRST-LAST:STEP, got {text!r}")


def scalar(text: str) -> Value:
    """Return a number if JSON reads the text as one; any other text (007, nan, too large to be exact) stays text."""
    number = _NUMBER.fullmatch(text)
    if not number:
        return text
    if number[1] or number[2]:
        real = float(text)
        return text if real in (float("inf"), float("-inf")) else real
    return int(text) if len(text) < 18 and abs(int(text)) <= MAX_INTEGER else text


def duration(text: str) -> float:
    """Return seconds from ``90``, ``90s``, ``10m``, ``1h30m`` or ``2d``."""
    return _measure(text, _SECONDS, "a duration such as 90s, 10m or 1h30m")


def size(text: str) -> float | Literal["unknown"]:
    """Read a duration, or the word ``unknown``."""
    return "unknown" if text.strip() == "unknown" else duration(text)


def memory(text: str) -> int:
    """Return bytes from ``2GB`` or ``2g`` (1000-based), ``512MiB`` (1024-based), or a plain number."""
    return round(_measure(text, _BYTES, "an amount of memory such as 2GB or 512MiB"))


def notification(text: str) -> dict[str, str]:
    """Read ``https://...`` or ``command:NAME``."""
    if text.startswith(("https://", "http://")):
        return {"webhook": text}
    kind, _, name = text.partition(":")
    if kind == "command" and name:
        return {"command": name}
    raise ValueError(f"expected a URL such as https://chat.example.org/hook, or command:NAME, got {text!r}")


def pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``, as of an environment variable."""
    name, found, value = text.partition("=")
    if name and found:
        return name, value
    raise ValueError(f"expected NAME=VALUE, got {text!r}")


def source(text: str) -> Path:
    """Return the path of a file to read; ``-`` is stdin, any other text with a leading hyphen is an option."""
    if text.startswith("-") and text != "-":
        raise ValueError(f"expected a file, or - for stdin, got {text!r}; to name such a file, write ./{text}")
    return Path(text)


def _range(bounds: re.Match[str]) -> RangeValues:
    return {"range": [int(bound) for bound in bounds.groups() if bound is not None]}


def _items(text: str) -> Iterator[Value]:
    place = 0
    while place <= len(text):
        found = _ITEM.match(text, place)
        if not found or found[3] == "":
            raise ValueError(f"expected values between commas, quoted where they hold one, got {text!r}")
        double, single, plain = found.groups()
        yield scalar(plain) if plain is not None else double if double is not None else single
        place = found.end() + 1


def _measure(text: str, units: Mapping[str, float], expected: str) -> float:
    source = text.strip().lower()
    parts = _MEASURE.findall(source)
    known = all(unit in units and (unit or len(parts) == 1) for _, unit in parts)
    if not (known and _MEASURES.fullmatch(source)):
        raise ValueError(f"expected {expected}, got {text!r}")
    return sum(float(number) * units[unit] for number, unit in parts)
