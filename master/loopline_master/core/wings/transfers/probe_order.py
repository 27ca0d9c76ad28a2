"""The order in which an idle network is measured: the flows to run next, alone or together.

1. From one host to each other, alone. Hosts that are not reached as fast as the fastest may be behind a link that is
   narrower than their own, or have slow ones: from the first of them to each of the others of them, and so on.
2. From the master to the first hosts of these rounds, which shows its switch.
3. All hosts in pairs, together, in three ways: links that several flows share are narrower than they seem alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopline_master.core.wings.transfers.assumed_network import MASTER
from loopline_master.core.wings.transfers.flow_sample import NEAR, Pair

Together = tuple[Pair, ...]
"""Flows that run at the same time."""
_MOST_PIVOTS = 4


def next_probes(hosts: Sequence[str], done: Mapping[Together, Mapping[Pair, float]]) -> Together:
    """Return the flows to run next, given the rates of the previous ones; none if all is done.

    ``done`` has rates in bytes per second; a flow that could not run is missing there.
    """
    rest, pivots = list(hosts), list[str]()
    while len(rest) > 1 and len(pivots) < _MOST_PIVOTS:
        pivots.append(rest[0])
        pairs = [(rest[0], other) for other in rest[1:]]
        if missing := next((pair for pair in pairs if (pair,) not in done), None):
            return (missing,)
        rates = {other: done[pair,].get(pair, 0.0) for pair in pairs for other in pair[1:]}
        fastest = max(rates.values())
        rest = [other for other, rate in rates.items() if 0 < rate < NEAR * fastest]
    from_master = [((MASTER, pivot),) for pivot in (*pivots, *rest[:1]) if pivots]
    return next((pairs for pairs in (*from_master, *_crowds(hosts)) if pairs not in done), ())


def _crowds(hosts: Sequence[str]) -> list[Together]:
    """Return ways to have all hosts at work: far pairs, the same backwards, and neighbours. None for two hosts."""
    half = len(hosts) // 2
    far = tuple(zip(hosts, hosts[half:], strict=False))[:half]
    near = tuple(zip(hosts[::2], hosts[1::2], strict=False))
    return [far, tuple((other, one) for one, other in far), near] if half > 1 else []
