"""Wakes sleeping computers of its own subnet by magic packets, as the master orders.

An order is repeated in every Assign until the computer has come. The packets are sent again after ``_AGAIN_S``: a
card that is just going to sleep misses some.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from loopline_shared.power import magic_packets
from loopline_worker.attempts.agent_wing import AgentWing
from loopline_worker.core.sleep_rule import FollowOrders
from loopline_worker.host.network_card import card_in

if TYPE_CHECKING:
    from loopline_shared.protocol.power import WakeTarget
    from loopline_worker.core.instructions import WingInstruction

log = logging.getLogger(__name__)

_AGAIN_S = 10.0


class PacketSender(AgentWing):
    """The agent's wing that sends magic packets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent_at: dict[str, float] = {}  # by hardware address

    def obey(self, instruction: WingInstruction) -> None:
        """Send packets to the targets in a subnet of this computer. An error is logged: the master tries again."""
        if isinstance(instruction, FollowOrders):
            self._send_to(instruction.orders.wake)

    def _send_to(self, targets: Iterable[WakeTarget]) -> None:
        now = self._clock()
        self._sent_at = {address: at for address, at in self._sent_at.items() if now < at + _AGAIN_S}
        for target in targets:
            if target.hardware_address not in self._sent_at:
                self._sent_at[target.hardware_address] = now
                self._send(target)

    def _send(self, target: WakeTarget) -> None:
        card = card_in(target.subnet)
        if not card:
            log.warning("cannot wake %s: this computer has no address in %s", target.worker, target.subnet)
            return
        try:
            magic_packets.send(target.hardware_address, target.subnet, card)
        except (OSError, ValueError) as error:
            log.warning("cannot wake %s through %s: %s", target.worker, card, error)
        else:
            log.info("sent magic packets through %s to wake %s", card, target.worker)
