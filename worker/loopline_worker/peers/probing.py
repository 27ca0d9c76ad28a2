"""Probes: the bytes that arrive from another worker or the master in a second, for the master's measurement of an
idle grid.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from loopline_shared.pieces import LEAST_PIECE_BYTES, MOST_PIECES, PieceLayout
from loopline_shared.protocol.transfers import FlowMeasured, MeasureFlow
from loopline_worker.files.receiving import GoneError, NetworkError
from loopline_worker.peers.token_bucket import TokenBucket
from loopline_worker.peers.upstreams import SourceError, Upstream

_WARM_UP_SHARE = 0.3
"""Share of the time that does not count: a connection needs a while until it is as fast as it can be."""
_LOOK_EVERY_S = 0.05
PROBE_LAYOUT = PieceLayout(LEAST_PIECE_BYTES * MOST_PIECES)
"""The file that a probe is for."""


def run(
    probe: MeasureFlow, connect: Callable[[], Upstream], limit: TokenBucket, may_go_on: Callable[[], bool]
) -> FlowMeasured:
    """Receive for as long as the probe says, in a thread of its own. It ends early once it may not go on."""
    try:
        with closing(connect()) as upstream:
            rate = _receive(upstream, probe.seconds, limit, may_go_on)
    except SourceError as error:
        return FlowMeasured(probe.number, None, f"{error.kind}: {error}"[:500])
    except (NetworkError, GoneError) as error:
        return FlowMeasured(probe.number, None, f"the master sends no probe: {error}"[:500])
    return FlowMeasured(probe.number, rate, "" if rate else "tasks or an owner want a computer")


def _receive(upstream: Upstream, seconds: float, limit: TokenBucket, may_go_on: Callable[[], bool]) -> float | None:
    """Return bytes per second; None if it had to end, or nothing came. Raises SourceError or NetworkError."""
    buffer = memoryview(bytearray(LEAST_PIECE_BYTES))
    number = count_bytes = 0
    began = counted_from = last = time.monotonic()
    while last < began + seconds and number < MOST_PIECES:
        if not may_go_on():
            return None
        if wait_s := limit.wait_s(last):
            time.sleep(min(wait_s, _LOOK_EVERY_S))
        upstream.ask_up_to(min(number + upstream.window_bytes // LEAST_PIECE_BYTES, MOST_PIECES))
        has_come, last = upstream.receive(buffer), time.monotonic()
        if has_come:
            limit.spend(len(buffer), last)
            number += 1
            count_bytes += len(buffer)
        if last < began + _WARM_UP_SHARE * seconds:
            counted_from, count_bytes = last, 0
    return count_bytes / (last - counted_from) if count_bytes else None
