"""Samples of flows: which ran together, and at what rates. What that shows is found out beside the loop.

They are kept in a file of the master's data folder, so that a restart forgets nothing of the network.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from loopline_master.core.wings.transfers.flow_sample import NO_CARDS, FlowSample, Pair, Switches
from loopline_master.core.wings.transfers.measured_network import NOTHING_MEASURED, MeasuredNetwork, measured_network
from loopline_shared.rest.bodies.network import FileFlow

log = logging.getLogger(__name__)

_SETTLED_S, _SURELY_SETTLED_S = 0.5, 3.0
"""Rates count once the same flows have run for the first time and most show a rate, or for the second time. They are
means over the last half second or more."""
_MOST = 0.45
_KEPT_FOR_S = 7 * 86400.0
_MOST_KEPT, _MOST_OF_ONE_SET = 120, 3


class FlowSamples:
    """Samples of the last week, the newest of each set of flows, and their conclusions."""

    def __init__(self, file: Path | None = None) -> None:
        self.measured: MeasuredNetwork = NOTHING_MEASURED
        self._file = file
        self._samples = _read(file) if file else []
        self._shown_of: Switches | None = None
        self._running: frozenset[Pair] = frozenset()
        self._since = 0.0

    def observe(self, now: float, flows: Iterable[FileFlow], swift: Collection[Pair] = ()) -> bool:
        """Sample the flows, some of them ``swift``. True if they make a sample."""
        rates, free = defaultdict[Pair, float](float), set[Pair]()
        for flow in flows:
            pair = flow.source, flow.receiver
            rates[pair] += flow.rate_bytes_s
            if flow.is_free:
                free.add(pair)
        if rates.keys() != self._running or now < self._since:  # the clock was set back
            self._since, self._running = now, frozenset(rates)
        showing = len(free) + len(rates.keys() & set(swift) - free)
        settled_s = _SETTLED_S if showing > _MOST * len(rates) else _SURELY_SETTLED_S
        if now < self._since + settled_s or not free:
            return False
        self.add(FlowSample(now, dict(rates), frozenset(free), frozenset(swift) & rates.keys()))
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
        """True if the samples were never analysed with these hosts."""
        return bool(self._samples) and self._shown_of != assumed

    async def learn(self, assumed: Switches, cards: Mapping[str, float] = NO_CARDS) -> None:
        """Find out what the samples show, and keep them, in a thread; ``cards``: bytes per second, where known."""
        self._shown_of = assumed
        self.measured = await asyncio.to_thread(self._learn, tuple(self._samples), assumed, cards)

    def learn_now(self, assumed: Switches, cards: Mapping[str, float]) -> None:
        """Find it out, as a simulation does: nothing waits for it there."""
        self._shown_of = assumed
        self.measured = self._learn(tuple(self._samples), assumed, cards)

    def _learn(
        self, samples: tuple[FlowSample, ...], assumed: Switches, cards: Mapping[str, float]
    ) -> MeasuredNetwork:
        if self._file:
            try:
                part = self._file.with_suffix(".part")
                part.write_text(json.dumps([_words(sample) for sample in samples]))
                part.replace(self._file)
            except OSError as error:
                log.warning("what was measured of the network cannot be kept: %s", error)
        return measured_network(samples, assumed, cards)


def _words(sample: FlowSample) -> dict[str, object]:
    """Return a sample as JSON has it: each flow with source, receiver, rate, and whether it was free, or swift."""
    flows = [(*pair, rate, pair in sample.free, pair in sample.swift) for pair, rate in sample.rates.items()]
    return {"at": sample.at, "in_turn": sample.in_turn, "is_idle": sample.is_idle, "flows": flows}


def _read(file: Path) -> list[FlowSample]:
    """Return the samples of a file; an empty list if it cannot be read."""
    try:
        return [_sample(**words) for words in json.loads(file.read_text())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read, and the network is measured again: %s", file, error)
        return []


def _sample(at: float, flows: list[tuple[str, str, float, bool, bool]], **kind: bool) -> FlowSample:
    rates = {(source, receiver): rate for source, receiver, rate, *_ in flows}
    free = frozenset((source, receiver) for source, receiver, _, is_free, *_ in flows if is_free)
    swift = frozenset((source, receiver) for source, receiver, _, _, *more in flows if any(more))
    return FlowSample(at, rates, free, swift, **kind)
