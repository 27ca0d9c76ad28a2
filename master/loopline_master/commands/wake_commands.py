"""Wakes that the master carries out itself: by magic packets, or by a command of the administrator (IPMI, AMT).

The scheduler orders them where no worker of the sleeper's subnet is awake, or an earlier wake has failed. The command
runs if the master has no address in that subnet, or an earlier wake has failed. Without a command the packets are
sent anyway: some routers pass them on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from loopline_master.commands.command import run
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.wings.power.sleeper import Sleeper
from loopline_master.core.wings.power.wakes import MAX_FAILED_WAKES, WakeOrder
from loopline_shared.errors import LooplineError
from loopline_shared.power import magic_packets

log = logging.getLogger(__name__)


class WakeCommands:
    """Carries out the scheduler's orders once they are on disk, one after the other."""

    def __init__(self, command: Sequence[str]) -> None:
        """``command``: empty if there is none."""
        self._command = command
        self._orders: asyncio.Queue[WakeOrder] = asyncio.Queue()

    def on_commit(self, effects: Effects) -> None:
        """Queue orders, and log the computers that will no longer be woken."""
        for order in effects.told(WakeOrder):
            self._orders.put_nowait(order)
        for sleeper in effects.rows(Sleeper).values():
            if sleeper.failed_wakes == MAX_FAILED_WAKES and sleeper.is_asleep and sleeper.waking_since is None:
                log.warning(
                    "%s did not wake %d times in a row: it is left asleep until `loopline wake %s`",
                    sleeper.worker, MAX_FAILED_WAKES, sleeper.worker,
                )  # fmt: skip

    async def run(self) -> None:
        """Carry out orders, until cancelled."""
        while True:
            await self._wake(await self._orders.get())

    async def _wake(self, order: WakeOrder) -> None:
        try:
            is_near = bool(order.subnet) and magic_packets.is_in(order.subnet)
            if order.subnet and (is_near or not self._command):
                magic_packets.send(order.hardware_address, order.subnet)
            if self._command and (order.has_failed or not is_near):
                await run(
                    self._command,
                    LOOPLINE_WAKE=order.worker,
                    LOOPLINE_HARDWARE_ADDRESS=order.hardware_address,
                    LOOPLINE_SUBNET=order.subnet,
                )
        except LooplineError as error:
            log.warning("wake_command did not wake %s: %s", order.worker, error.message)
        except (OSError, ValueError) as error:
            log.warning("cannot send magic packets to %s in %s: %s", order.worker, order.subnet, error)
