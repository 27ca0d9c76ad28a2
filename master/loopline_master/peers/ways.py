"""Routes between workers in words, for explanations: the connecting side of a pair, or delivery by the master."""

from __future__ import annotations

from collections.abc import Iterable

from loopline_master.core.wings.transfers.assumed_network import MASTER
from loopline_master.peers.exchange import Exchange
from loopline_shared.rest.bodies import Explanation, FileFlow, Reason

_MOST_NAMED = 5


def with_ways(explained: Explanation, exchange: Exchange, flows: Iterable[FileFlow]) -> Explanation:
    """Return the explanation with the ways of those files that come from workers."""
    pairs = dict.fromkeys((flow.source, flow.receiver) for flow in flows if flow.source != MASTER)
    ways = [Reason(code="way", count=1, detail=_in_words(exchange, *pair)) for pair in list(pairs)[:_MOST_NAMED]]
    sentence = "; ".join([explained.sentence, *(reason.detail for reason in ways)])
    return explained.model_copy(update={"sentence": sentence, "reasons": [*explained.reasons, *ways]})


def _in_words(exchange: Exchange, source: str, receiver: str) -> str:
    if port := exchange.port_for(receiver, source):
        return f"{receiver} connects to port {port} of {source}"
    if port := exchange.port_for(source, receiver):
        return f"{receiver} cannot reach {source}, which connects to port {port} of {receiver} instead"
    return f"{receiver} and {source} cannot reach each other: it comes from the next of the line, or the master"
