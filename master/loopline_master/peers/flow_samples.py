"""Samples of flows: which ran together, and at what rates. What that shows is found out beside the loop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from loopline_master.core.transfers.measured_network import (
    NOTHING_MEASURED,
    FlowSample,
    MeasuredNetwork,
    Pair,
    Switches,
    measured_network,
)
from loopline_shared.rest.bodies.network import FileFlow

_SETTLED_TICKS = 3
"""Rates count once the same flows have run for so many seconds: they are means over the last one."""
_KEPT_FOR_S = 3600.0
_MOST_KEPT, _MOST_OF_ONE_SET = 120, 3


class FlowSamples:
    """Samples of the last hour, of each set of flows the newest, and what they show."""

    def __init__(self) -> None:
        self.measured: MeasuredNetwork = NOTHING_MEASURED
        self._samples: list[FlowSample] = []
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

    async def learn(self, assumed: Switches) -> None:
        """Find out what the samples show, in a thread."""
        self.measured = await asyncio.to_thread(measured_network, tuple(self._samples), assumed)
