"""How fast one core of this computer is: a short benchmark against a reference core.

The reference: a core of speed 1.0 does one *slice* (``_slice``: about half interpreted Python, half hashing) in
REFERENCE_S of CPU time. A computer is as fast as its best slice: whatever else runs on it can only make one slower,
so that the figure is repeatable. It depends on the version of Python a little, as tasks written in Python do.
Kept in the agent's data folder, and measured again when the computer, its Python or this benchmark changes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from loopline_shared.model import SpeedSource

log = logging.getLogger(__name__)

REFERENCE_S = 0.004
SLICES = 30
_SETTLED = 6
_BETTER = 0.99
_VERSION = 1
_LATEST = 1e10
_STEPS = 16_000
_BLOCK = bytes(range(256)) * 256
_BLOCKS = 32


def measure(slices: int = SLICES) -> float:
    """Speed of one core, by the best of many slices, until none is better for a while: an eighth of a second of work
    at most, and often a third of that.
    """
    best_s, in_vain = math.inf, 0
    for _ in range(slices):
        took_s = _timed()
        in_vain = 0 if took_s < _BETTER * best_s else in_vain + 1
        best_s = min(best_s, took_s)
        if in_vain == _SETTLED:
            break
    return round(REFERENCE_S / best_s, 2)


@dataclass(frozen=True, slots=True)
class Speed:
    """What a benchmark found, how we know, and when it was measured (seconds since 1970)."""

    value: float
    source: SpeedSource
    measured_at: float | None


def kept(file: Path, model: str, cpus: int) -> float:
    """As measured on this very computer before, else now."""
    return known(file, model, cpus).value


def known(file: Path, model: str, cpus: int) -> Speed:
    """As measured on this very computer before, else now; and when."""
    here = [_VERSION, model, cpus, platform.machine(), platform.python_version()]
    try:
        read = json.loads(file.read_text("utf-8"))
        if read["computer"] == here and read["speed"] > 0:
            return Speed(float(read["speed"]), SpeedSource.KEPT, _moment(read.get("measured_at")))
    except (OSError, ValueError, TypeError, KeyError):
        pass
    speed, now = measure(), time.time()
    log.info("one core of this computer has speed %.2f", speed)
    try:
        file.write_text(json.dumps({"computer": here, "speed": speed, "measured_at": now}), "utf-8")
    except OSError as error:
        log.warning("cannot keep that, so it is measured again at the next start: %s", error)
    return Speed(speed, SpeedSource.BENCHMARK, now)


def _moment(kept: object) -> float | None:
    return float(kept) if isinstance(kept, int | float) and 0 <= kept <= _LATEST else None


def _timed() -> float:
    began = time.thread_time()
    _slice()
    return max(time.thread_time() - began, 1e-6)


def _slice() -> int:
    value = 1
    for step in range(_STEPS):
        value = (value * 1103515245 + step) % 2147483648
    digest = hashlib.blake2b()
    for _ in range(_BLOCKS):
        digest.update(_BLOCK)
    return value + digest.digest()[0]
