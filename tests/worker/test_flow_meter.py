"""Rates of flows, and whether the network alone decided them."""

from __future__ import annotations

from loopline_worker.peers.flow_meter import FlowMeter


def test_the_rate_is_that_of_the_latest_window_and_late_pieces_show_that_the_source_waited() -> None:
    now = [0.0]
    meter = FlowMeter(lambda: now[0])
    assert meter.read() == (0.0, False)
    now[0] = -2.0
    meter.begin()
    now[0] = -1.0
    assert meter.read() == (0.0, False)
    meter.count(100, is_late=False)
    now[0] = 0.0
    assert meter.read() == (100.0, False), "so a flow begins, whatever the network carries"
    for _ in range(4):
        meter.count(100, is_late=False)
    now[0] = 0.4
    assert meter.read() == (100.0, False)  # too early to tell
    now[0] = 1.0
    assert meter.read() == (400.0, True)
    now[0] = 1.2
    assert meter.read() == (400.0, True)
    for is_late in (True, False, True):
        meter.count(100, is_late=is_late)
    now[0] = 2.0
    assert meter.read() == (300.0, False)
    meter.count(100, is_late=False)
    meter.hold_back()
    now[0] = 3.0
    assert meter.read() == (100.0, False)
    now[0] = 4.0
    assert meter.read() == (0.0, False)  # nothing came: that tells nothing of the network
    meter.begin()
    assert meter.read() == (0.0, False)
