"""Samples of flows: which ran together, and at what rates. What that shows is found out beside the loop.

They are kept in a file of the master's data folder, so that a restart forgets nothing of the network.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from loopline_master.core.transfers.measured_network import (
    NOTHING_MEASURED,
    FlowSample,
    MeasuredNetwork,
    Pair,
    Switches,
    measured_network,
)
from loopline_shared.rest.bodies.network import FileFlow

log = logging.getLogger(__name__)

_SETTLED_TICKS = 3
"""Rates count once the same flows have run for so many seconds: they are means over the last one."""
_KEPT_FOR_S = 7 * 86400.0
_MOST_KEPT, _MOST_OF_ONE_SET = 120, 3


class FlowSamples:
    """Samples of the last week, of each set of flows the newest, and what they show."""

    def __init__(self, file: Path | None = None) -> None:
        self.measured: MeasuredNetwork = NOTHING_MEASURED
        self._file = file
        self._samples = _read(file) if file else []
        self._shown_of: Switches | None = None
        self._running: frozenset[Pair] = frozenset()
        self._ticks = 0

    def observe(self, now: float, flows: Iterable[FileFlow]) -> bool:
        """Look at the flows, once a second. True if they make a sample."""
        rates, free = defaultdict[Pair, float](float), set[Pair]()
        for flow in flows:
            pair = flow.source, flow.receiver
            rates[pair] += flow.rate_bytes_s
            if flow.is_free:
                free.add(pair)
        self._ticks = self._ticks + 1 if rates.keys() == self._running else 1
        self._running = frozenset(rates)
        if self._ticks < _SETTLED_TICKS or not free:
            return False
        self.add(FlowSample(now, dict(rates), frozenset(free)))
        return True

    def add(self, sample: FlowSample) -> None:
        """Keep a sample; older ones of the same flows, and those of long ago, are forgotten."""
        pairs, alike = sample.rates.keys(), 1
        kept = []
        for one in reversed(self._samples):
            alike += one.rates.keys() == pairs
            if one.at > sample.at - _KEPT_FOR_S and (one.rates.keys() != pairs or alike <= _MOST_OF_ONE_SET):
                kept.append(one)
        self._samples = [*reversed(kept[: _MOST_KEPT - 1]), sample]

    def is_news(self, assumed: Switches) -> bool:
        """True if the samples were never looked at with these hosts."""
        return bool(self._samples) and self._shown_of != assumed

    async def learn(self, assumed: Switches) -> None:
        """Find out what the samples show, and keep them, in a thread."""
        self._shown_of = assumed
        self.measured = await asyncio.to_thread(self._learn, tuple(self._samples), assumed)

    def _learn(self, samples: tuple[FlowSample, ...], assumed: Switches) -> MeasuredNetwork:
        if self._file:
            try:
                part = self._file.with_suffix(".part")
                part.write_text(json.dumps([_words(sample) for sample in samples]))
                part.replace(self._file)
            except OSError as error:
                log.warning("what was measured of the network cannot be kept: %s", error)
        return measured_network(samples, assumed)


def _words(sample: FlowSample) -> dict[str, object]:
    """Return a sample as JSON has it: each flow with its source, receiver, rate, and whether it was free."""
    flows = [(*pair, rate, pair in sample.free) for pair, rate in sample.rates.items()]
    return {"at": sample.at, "flows": flows}


def _read(file: Path) -> list[FlowSample]:
    """Return the samples of a file; an empty list if it cannot be read."""
    try:
        return [_sample(words["at"], words["flows"]) for words in json.loads(file.read_text())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read, and the network is measured anew: %s", file, error)
        return []


def _sample(at: float, flows: list[tuple[str, str, float, bool]]) -> FlowSample:
    rates = {(source, receiver): rate for source, receiver, rate, _ in flows}
    return FlowSample(at, rates, frozenset((source, receiver) for source, receiver, _, is_free in flows if is_free))
