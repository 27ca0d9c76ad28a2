"""Values of options and job files, as people write them. Pure; a ValueError tells what was expected."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Literal

from loopline_shared.ids_and_states import MAX_ID, TaskId
from loopline_shared.job import parameters
from loopline_shared.rest import times

RangeValues = dict[str, list[int]]
Value = str | int | float

_LEAST_MEMORY_BYTES = 2**20
MAX_INTEGER = 2**53  # largest integer that every JSON reader keeps exact; larger ones stay text

MOST_LISTED = 1_000_000  # values that a job spec may list

_RANGE = re.compile(r"(-?\d{1,15})\.\.(-?\d{1,15})(?::(-?\d{1,15}))?")
_ARRAY = re.compile(r"(\d{1,15})-(\d{1,15})(?::(\d{1,15}))?")
_SLURM_ARRAY = re.compile(r"(.+)%(\d{1,9})")
_DECIMAL = r"-?(?:\d{1,15}(?:\.\d{1,15})?|\.\d{1,15})(?:[eE][+-]?\d{1,2})?"
_DECIMALS = re.compile(rf"({_DECIMAL})\.\.({_DECIMAL})(?::({_DECIMAL}))?")
_LIKE_A_RANGE = re.compile(r"-?\.?\d[^\s,]*?\.\.[^\s,./]\S*")
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
    """Read ``seed=1..100``, ``seed=1..100:5``, ``lr=0.1..0.5:0.1`` or ``lr=0.1,0.01``.

    A quoted value stays text, commas and all.
    """
    name, _, values = (part.strip() for part in text.partition("="))
    if not (name and values):
        raise ValueError(f"expected NAME=VALUES such as seed=1..100 or lr=0.1,0.01, got {text!r}")
    if bounds := _RANGE.fullmatch(values):
        return name, _range(bounds)
    if bounds := _DECIMALS.fullmatch(values):
        return name, list(_decimals(*bounds.groups()))
    if _LIKE_A_RANGE.fullmatch(values):
        expected = f"a range such as 1..100, 1..100:5 or 0.1..0.5:0.1, got {values!r}"
        raise ValueError(f"expected {expected}; to have it as a text, quote it: {name}='\"{values}\"'")
    return name, list(_items(values))


def split_array(text: str) -> tuple[str, int | None]:
    """Return the numbers of an array, and the limit after Slurm's ``%``; None if there is none."""
    limited = _SLURM_ARRAY.fullmatch(text.strip())
    return (limited[1], int(limited[2])) if limited else (text, None)


def array(text: str) -> RangeValues | list[Value]:
    """Read ``1-1000``, ``1-1000:2`` or ``1,3,7-9``, ends included. A number that is given twice counts once.

    A limit of running tasks, as in ``1-1000%10``, is left out.
    """
    text, _ = split_array(text)
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and (bounds := _ARRAY.fullmatch(parts[0])):
        return _range(bounds)
    if len(parts) > 1 and all(_ARRAY.fullmatch(part) or re.fullmatch(r"\d{1,15}", part) for part in parts):
        listed: dict[Value, None] = {}
        for part in parts:
            bounds = _ARRAY.fullmatch(part)
            listed |= dict.fromkeys(_listed(_range(bounds)) if bounds else [scalar(part)])
            if len(listed) > MOST_LISTED:
                raise ValueError(f"an array of several ranges has at most {MOST_LISTED:,} numbers, got {text!r:.80}")
        return list(listed)
    raise ValueError(f"expected FIRST-LAST, FIRST-LAST:STEP or a list such as 1,3,7-9, got {text!r}")


def scalar(text: str) -> Value:
    """Return a number if it would be written as the text is; any other text (3.10, 1e5, 007, nan) stays as it is.

    So a command gets what was typed. Programs that read ``LOOPLINE_PARAMETERS``, and charts, get the number.
    """
    number = _NUMBER.fullmatch(text)
    if not number:
        return text
    if number[1] or number[2]:
        return as_written(float(text), text)
    return as_written(int(text), text) if len(text) < 18 and abs(int(text)) <= MAX_INTEGER else text


def as_written(number: float, text: str) -> Value:
    """Return the number if it would be written as the text is, and the text otherwise."""
    return number if str(number) == text else text


def duration(text: str) -> float:
    """Return seconds from ``90``, ``90s``, ``10m``, ``1h30m`` or ``2d``."""
    return _measure(text, _SECONDS, "a duration such as 90s, 10m or 1h30m")


def since(text: str) -> float:
    """Return a time, in seconds since 1970, from a duration before now or a time with its zone."""
    if re.match(r"\d{4}-", text):
        return float(str(times.seconds(text.strip())))
    return max(0.0, time.time() - duration(text))


def size(text: str) -> float | Literal["unknown"]:
    """Read a duration, or the word ``unknown``."""
    return "unknown" if text.strip() == "unknown" else duration(text)


def memory(text: str) -> int:
    """Return bytes from ``2GB`` or ``2g`` (1000-based), ``512MiB`` (1024-based), or a plain number."""
    size_bytes = round(_measure(text, _BYTES, "an amount of memory such as 2GB or 512MiB"))
    if size_bytes < _LEAST_MEMORY_BYTES:
        meant = f": did you mean {text.strip()}MB?" if text.strip().isdigit() else ""
        raise ValueError(f"{text.strip()} is {size_bytes:,} bytes, and no program runs in less than 1 MiB{meant}")
    return size_bytes


def notification(text: str) -> dict[str, str]:
    """Read ``https://...`` or ``command:NAME``."""
    if text.startswith(("https://", "http://")):
        return {"webhook": text}
    kind, _, name = text.partition(":")
    if kind == "command" and name:
        return {"command": name}
    raise ValueError(f"expected a URL such as https://chat.example.org/hook, or command:NAME, got {text!r}")


def count_or_share(text: str) -> int | str:
    """Read ``5`` or ``10%``."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1]) and 0 < float(text[:-1]) <= 100:
        return text
    raise ValueError(f"expected a number of tasks such as 5, or a share of them such as 10%, got {text!r}")


def whole_number(text: str, words: Sequence[str]) -> int | str:
    """Return the number, or the text if it is one of these words. Raises ValueError for fractions."""
    try:
        return text if text in words else int(text)
    except ValueError:
        raise ValueError(f"expected {' or '.join(('a whole number', *words))}, got {text!r}") from None


def units(text: str) -> int | None:
    """Return a number of units; None for ``none``. Raises ValueError for anything else."""
    if text == "none":
        return None
    if text.isdecimal():
        return int(text)
    raise ValueError(f"expected a whole number or none, got {text!r}")


def gpus(text: str) -> int | float:
    """Return a number of GPUs, or a part of one. Raises ValueError for anything else."""
    with suppress(ValueError):
        if (number := float(text)).is_integer() or 0 < number < 1:
            return int(number) if number.is_integer() else number
    raise ValueError(f"expected a whole number of GPUs or a part of one such as 0.5, got {text!r}")


def need(text: str) -> tuple[str, int]:
    """Read ``NAME`` or ``NAME=UNITS``."""
    name, found, count = text.partition("=")
    if name and (not found or (count.isdecimal() and int(count))):
        return name, int(count) if found else 1
    raise ValueError(f"expected NAME or NAME=UNITS, got {text!r}")


def pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``, as of an environment variable."""
    name, found, value = text.partition("=")
    if name and found:
        return name, value
    raise ValueError(f"expected NAME=VALUE, got {text!r}")


def variable(name: str) -> str:
    """Return the value of a variable of this environment. Raises ValueError if it has none."""
    value = os.environ.get(name)
    if value:
        return value
    raise ValueError(f"--secret {name}: there is no such variable here, or it is empty: export it first")


def source(text: str) -> Path:
    """Return the path of a file to read; ``-`` is stdin, any other text with a leading hyphen is an option."""
    if text.startswith("-") and text != "-":
        raise ValueError(f"expected a file, or - for stdin, got {text!r}; to name such a file, write ./{text}")
    return Path(text)


def _range(bounds: re.Match[str]) -> RangeValues | list[Value]:
    """Return a range as a job spec has it; 001..100 as a list of texts, which keep their width."""
    numbers = [int(bound) for bound in bounds.groups() if bound is not None]
    ends = [bound.lstrip("-") for bound in bounds.groups()[:2]]
    if not any(len(end) > 1 and end.startswith("0") for end in ends):
        return {"range": numbers}
    width, listed = max(map(len, ends)), parameters.Range(range=numbers)
    if len(listed) > MOST_LISTED:
        raise ValueError(f"a range of padded numbers has at most {MOST_LISTED:,} values, got {bounds[0]}")
    return [f"{'-' if number < 0 else ''}{abs(number):0{width}}" for number in listed.values]


def _listed(given: RangeValues | list[Value]) -> Sequence[Value]:
    """Return at most one value more than a job spec may list."""
    if isinstance(given, list):
        return given
    try:
        return parameters.Range(range=given["range"]).values[: MOST_LISTED + 1]
    except ValueError:
        raise ValueError(f"the range {'-'.join(map(str, given['range'][:2]))} is empty or too long") from None


def _decimals(first: str, last: str, step: str | None) -> Iterator[float]:
    """Yield the numbers from first to last, both included, as they would be written: 0.3, not 0.30000000000000004."""
    if step is None:
        raise ValueError(f"a range of fractions has a step: {first}..{last}:STEP, such as 0.1..0.5:0.1")
    here, end, stride = Fraction(first), Fraction(last), Fraction(step)
    count = (end - here) // stride + 1 if stride else 0
    if count < 1:
        raise ValueError(f"the range {first}..{last}:{step} is empty")
    if count > MOST_LISTED:
        raise ValueError(f"the range {first}..{last}:{step} has more than {MOST_LISTED:,} values")
    return (float(here + place * stride) for place in range(count))


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


def subject(text: str) -> TaskId | int:
    """Return the job ``12`` or the task ``12.3``. Raises ValueError for anything else."""
    try:
        read = TaskId.parse(text) if "." in text else int(text)
    except ValueError:
        raise ValueError(f"expected a job such as 12, or a task such as 12.3, got {text!r}") from None
    if not 1 <= min(read if isinstance(read, TaskId) else (read,)) <= MAX_ID:
        raise ValueError(f"jobs and tasks are numbered from 1, got {text!r}")
    return read


def job(text: str) -> int:
    """Return the number of a job. Raises ValueError for anything else."""
    read = subject(text)
    if isinstance(read, TaskId):
        raise ValueError(f"expected a job such as {read.job}, got the task {text!r}")
    return read


def subject_or_worker(text: str) -> TaskId | int | str:
    """Return the job ``12``, the task ``12.3``, or a worker's name. Raises ValueError for anything else."""
    if text.replace(".", "").isdigit():
        return subject(text)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise ValueError(f"expected a job such as 12, a task such as 12.3, or a worker's name, got {text!r}")
    return text
