"""A worker that wakes computers of its subnet, in a network namespace of its own."""

from __future__ import annotations

import sys

import pytest

from loopline_shared.power.magic_packets import PACKETS
from loopline_shared.protocol.power import PowerOrders, WakeTarget
from loopline_worker.core.sleep_rule import FollowOrders
from loopline_worker.power.packet_sender import PacketSender
from tests.shared.test_magic_packets import CARD, LAB, LAB6, OFFICE, Lab, lab

__all__ = ["lab"]

OBEY = """
import sys
from loopline_shared.protocol.power import PowerOrders, WakeTarget
from loopline_worker.core.sleep_rule import FollowOrders
from loopline_worker.power.packet_sender import PacketSender
now = 0.0
sender, target = PacketSender(lambda: now), WakeTarget("ant", *sys.argv[1:3])
for now in map(float, sys.argv[3].split()):
    sender.obey(FollowOrders(PowerOrders((target,))))
"""


@pytest.mark.parametrize(
    ("subnet", "times", "rounds"), [(LAB, "0", 1), (LAB6, "0", 1), (LAB, "0 1 9", 1), (LAB, "0 11", 2)]
)
def test_order_is_repeated_after_ten_seconds(lab: Lab, subnet: str, times: str, rounds: int) -> None:
    with lab.count("asleep", "pc") as counted:
        lab.run("pc", sys.executable, "-c", OBEY, CARD, subnet, times)
    assert counted == [rounds * PACKETS]


def test_packets_leave_through_the_card_in_the_subnet(lab: Lab) -> None:
    with lab.count("asleep", "pc") as in_lab, lab.count("end2", "far") as in_office:
        lab.run("router", sys.executable, "-c", OBEY, CARD, OFFICE, "0")
    assert (in_lab, in_office) == ([0], [PACKETS])


def test_order_for_another_subnet_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    target = WakeTarget("ant", CARD, "198.51.100.0/24")
    PacketSender().obey(FollowOrders(PowerOrders((target,))))
    assert "cannot wake ant: this computer has no address in 198.51.100.0/24" in caplog.text
