"""The speed of one core of this computer: a short benchmark against a reference core.

A core of speed 1.0 runs one *slice* (``_slice``: about half interpreted Python, half hashing) in REFERENCE_S of CPU
time. The best slice counts: other programs can only make a slice slower, so that the figure is repeatable. It depends
a little on the version of Python, as tasks written in Python do. The result is kept in the agent's data folder, and
measured again when the computer, its Python or this benchmark changes.
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
    """Measure one core by the best of many slices, until none is better for a while.

    That takes an eighth of a second of CPU time at most, and often a third of that.
    """
    best_s, without_gain = math.inf, 0
    for _ in range(slices):
        took_s = _timed()
        without_gain = 0 if took_s < _BETTER * best_s else without_gain + 1
        best_s = min(best_s, took_s)
        if without_gain == _SETTLED:
            break
    return round(REFERENCE_S / best_s, 2)


@dataclass(frozen=True, slots=True)
class Speed:
    """A measured speed, its source, and when it was measured (seconds since 1970)."""

    value: float
    source: SpeedSource
    measured_at: float | None


def kept(file: Path, model: str, cpus: int) -> float:
    """Return the speed that was measured on this computer before; measure it if there is none."""
    return known(file, model, cpus).value


def known(file: Path, model: str, cpus: int) -> Speed:
    """Return the speed with its source and moment; measure it if it was not measured here before."""
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
        log.warning("cannot save the speed, so it is measured again at the next start: %s", error)
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
