"""Foreign packets on a network: a rate that changes with time, and packets that arrive at that rate.

Poisson traffic is the paper's. Superposed on/off sources with Pareto periods are self-similar (Willinger et al.: the
Hurst parameter is (3 - shape) / 2); a trace is measured traffic: the paper names both as future work. Packets are
drawn on demand window by window, each from its own stream, and are independent of the requests: all schedulers meet
the same traffic.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import accumulate, chain, count, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from loopline_shared.errors import LooplineError
from loopline_simulator.papers.global_computing.laws import Numbers, Pareto, draws
from loopline_simulator.papers.global_computing.part import Part, Positive
from loopline_simulator.streams import Generator, stream

_PACKETS_A_WINDOW = 1000
_LONGEST_WINDOW_S = 1e6


class Rate:
    """Bytes per second as a step function of time, to be queried in the order of time."""

    def __init__(self, changes: Iterator[tuple[float, float]]) -> None:
        """Take ``changes``: times with the rate from then on; the first is at 0 or before."""
        self._changes = changes
        self._value = 0.0
        self._next = next(changes)

    def steps(self, start: float, end: float) -> tuple[Numbers, Numbers]:
        """Return the times of rate changes from ``start`` to ``end``, and the rates between them (one less)."""
        self._pass(start)
        edges, values = [start], [self._value]
        while self._next[0] < end:
            edges.append(self._next[0])
            self._pass(self._next[0])
            values.append(self._value)
        return np.array([*edges, end]), np.array(values)

    def _pass(self, now: float) -> None:
        while self._next[0] <= now:
            self._value = self._next[1]
            self._next = next(self._changes, (math.inf, 0.0))


class Poisson(Part):
    """Traffic at a constant rate."""

    kind: Literal["poisson"] = "poisson"

    def rate(self, mean: float, random: Generator) -> Rate:
        return Rate(iter([(0.0, mean)]))


class OnOff(Part):
    """Traffic of ``sources`` that are on and off for Pareto periods of these means (seconds).

    Together they have the mean rate that is asked for. A shape from 1 to 2 makes them self-similar.
    """

    kind: Literal["on-off"] = "on-off"
    sources: Annotated[int, Field(ge=1, le=10_000)] = 16
    shape: Annotated[float, Field(gt=1, le=100)] = 1.4
    on_s: Positive = 2.0
    off_s: Positive = 4.0

    def rate(self, mean: float, random: Generator) -> Rate:
        share_on = self.on_s / (self.on_s + self.off_s)
        each = mean / (self.sources * share_on)
        switches = merge(*(self._switches(share_on, source) for source in random.spawn(self.sources)))
        sums = accumulate(switches, lambda total, switch: (switch[0], total[1] + switch[1]))
        return Rate((at, on * each) for at, on in sums)

    def _switches(self, share_on: float, random: Generator) -> Iterator[tuple[float, int]]:
        """Yield the times when one source switches on (+1) and off (-1), in its long-run state at time 0."""
        law = Pareto(shape=self.shape)
        periods = draws(law, 1.0, random)
        on = float(random.random()) < share_on
        yield 0.0, int(on)
        now = law.rest(random) * (self.on_s if on else self.off_s)
        while True:
            on = not on
            yield now, 1 if on else -1
            now += next(periods) * (self.on_s if on else self.off_s)


class TraceTraffic(Part):
    """Measured traffic: a CSV of ``time,bytes`` or ``time,rate``.

    Bytes passed from that time until the next line; a rate is in bytes per second from that time on. The trace is
    repeated for ever, each network beginning at a random place in it, and scaled to the mean rate that is asked for,
    unless it is ``absolute``.
    """

    kind: Literal["trace"] = "trace"
    file: str
    absolute: bool = False

    def rate(self, mean: float, random: Generator) -> Rate:
        times, rates = read_trace(self.file)
        length = times[-1]
        own = sum(rate * (end - start) for rate, (start, end) in zip(rates, pairwise(times), strict=True)) / length
        factor = 1.0 if self.absolute else mean / own
        begins = -float(random.random()) * length
        rounds = (zip((begins + n * length + time for time in times), rates, strict=False) for n in count())
        return Rate((at, rate * factor) for at, rate in chain.from_iterable(rounds))


Traffic = Annotated[Poisson | OnOff | TraceTraffic, Field(discriminator="kind")]


@lru_cache
def read_trace(file: str) -> tuple[list[float], list[float]]:
    """Return times from 0 to the trace's end, and the bytes per second between them. Raises LooplineError if
    unusable.
    """
    try:
        with Path(file).open(newline="") as lines:
            rows = csv.DictReader(lines)
            columns = tuple(rows.fieldnames or ())
            if columns not in (("time", "bytes"), ("time", "rate")):
                raise _unusable(file, f"its first line is {','.join(columns)!r}", "write time,bytes or time,rate")
            numbers = [(float(row["time"]), float(row[columns[1]])) for row in rows]
    except OSError as error:
        raise _unusable(file, error.strerror or str(error)) from None
    except (TypeError, ValueError) as error:
        raise _unusable(file, str(error), "each line is two numbers, such as 0.5,120000") from None
    return _checked(file, numbers, columns[1] == "bytes")


def _checked(file: str, rows: Sequence[tuple[float, float]], are_bytes: bool) -> tuple[list[float], list[float]]:
    times, values = [time for time, _ in rows], [value for _, value in rows]
    if len(rows) < 2 or not all(later > earlier for earlier, later in pairwise(times)):
        raise _unusable(file, "it needs two lines or more, each later than the one before")
    if not all(0 <= value < math.inf for value in values) or not any(values):
        raise _unusable(file, "no value may be negative or infinite, nor all of them 0")
    times.append(2 * times[-1] - times[-2])  # the last step is as long as the one before
    lengths = [later - earlier for earlier, later in pairwise(times)]
    rates = [value / length for value, length in zip(values, lengths, strict=True)] if are_bytes else values
    return [time - times[0] for time in times], rates


def _unusable(file: str, why: str, hint: str = "") -> LooplineError:
    return LooplineError("usage", f"{file}: {why}", hint)


class Packets:
    """Foreign packets of a network, window by window."""

    def __init__(
        self, rate: Rate, mean_rate: float, packet_bytes: float, law: Any, seed: int, name: tuple[str, ...]
    ) -> None:
        self._rate, self._packet_bytes, self._law = rate, packet_bytes, law
        self._seed, self._name = seed, name
        often = mean_rate / packet_bytes
        self.window_s = min(_PACKETS_A_WINDOW / often, _LONGEST_WINDOW_S) if often else _LONGEST_WINDOW_S

    def window(self, number: int) -> tuple[list[float], Numbers]:
        """Return the times and bytes of the packets in the window ``number``. Numbers must not decrease between
        calls.
        """
        random = stream(self._seed, *self._name, number)
        edges, rates = self._rate.steps(number * self.window_s, (number + 1) * self.window_s)
        passed = np.concatenate(([0.0], np.cumsum(rates * np.diff(edges))))  # bytes, by then
        count = random.poisson(passed[-1] / self._packet_bytes)
        sums = np.cumsum(random.standard_exponential(count + 1))  # their shares are uniform numbers in order
        times = np.interp(sums[:-1] / sums[-1] * passed[-1], passed, edges)
        return times.tolist(), self._packet_bytes * self._law.draw(random, count)
