"""Rates of flows, and their limiting factors."""

from __future__ import annotations

import pytest

from loopline_worker.peers.flow_meter import FlowMeter, FlowReading


class Flow:
    """A meter with its own clock: pieces of 100 bytes, one after another."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meter = FlowMeter(lambda: self.now)

    def pieces(self, count: int, every_s: float, took_s: float = 0.0, *, is_late: bool = False) -> None:
        for _ in range(count):
            self.now += every_s
            self.meter.count(100, took_s, is_late=is_late)

    def begun(self) -> Flow:
        """Return the meter after the first pieces of a flow."""
        self.pieces(1, 0.25)
        self.meter.read()
        return self


def test_start_of_a_flow_is_not_used_as_a_measurement() -> None:
    flow = Flow()
    assert flow.meter.read() == FlowReading()
    flow.pieces(3, 0.1)
    assert flow.meter.read() == FlowReading(pytest.approx(1000.0))
    flow.pieces(6, 0.1)
    assert flow.meter.read() == FlowReading(pytest.approx(1000.0), is_free=True)
    flow.meter.begin()
    assert flow.meter.read() == FlowReading(), "another source"


def test_first_pieces_from_a_source_show_how_fast_its_hop_is() -> None:
    flow = Flow()
    assert flow.meter.train_bytes_s == 0.0
    flow.pieces(2, 0.5, took_s=0.1, is_late=True)
    assert flow.meter.train_bytes_s == pytest.approx(1000.0)
    flow.meter.read()
    flow.pieces(5, 0.1, took_s=0.05, is_late=True)
    assert flow.meter.train_bytes_s == pytest.approx(1000.0), "later pieces do not travel alone"
    flow.meter.begin()
    assert flow.meter.train_bytes_s == 0.0, "another source"


def test_window_ends_with_a_piece_for_slow_flows() -> None:
    flow = Flow().begun()
    flow.pieces(1, 0.7)
    flow.now += 0.6
    assert flow.meter.read().rate_bytes_s == pytest.approx(100 / 0.7)
    flow.now += 0.1
    flow.meter.count(100, 0.0, is_late=False)
    assert flow.meter.read().rate_bytes_s == pytest.approx(100 / 0.7)
    flow.now += 0.4
    assert flow.meter.read().rate_bytes_s == pytest.approx(100 / 0.7), (
        "no piece arrived since, and the window is short"
    )
    flow.now += 1.2
    assert flow.meter.read() == FlowReading(), "a stalled flow does not measure the network"


def test_flow_at_its_rate_limit_is_not_a_measurement() -> None:
    flow = Flow().begun()
    flow.pieces(6, 0.1)
    flow.meter.hold_back()
    assert flow.meter.read() == FlowReading(pytest.approx(1000.0))


@pytest.mark.parametrize(
    ("took_s", "is_free", "is_swift"), [(0.09, True, False), (0.05, False, False), (0.01, False, True)]
)
def test_duration_of_late_pieces_shows_spare_network_capacity(took_s: float, is_free: bool, is_swift: bool) -> None:
    flow = Flow().begun()
    flow.pieces(6, 0.1, took_s, is_late=True)
    flow.meter.starve()
    assert flow.meter.read() == FlowReading(pytest.approx(1000.0), is_free=is_free, is_swift=is_swift)
    flow.pieces(6, 0.1, 0.1)
    flow.meter.starve()
    assert flow.meter.read().is_free, "a flow that starved between pieces is measured within them"
