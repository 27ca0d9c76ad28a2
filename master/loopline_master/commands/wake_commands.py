"""Wakes that the master carries out itself: by magic packets, or by a command of the administrator (IPMI, AMT).

The scheduler orders them where no worker of the sleeper's subnet is awake, or an earlier wake has failed. The command
runs if the master has no address in that subnet, cannot send packets, or an earlier wake has failed. Without a
command the packets are sent anyway: some routers pass them on.
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


_AT_ONCE = 8


class WakeCommands:
    """Carries out the scheduler's orders once they are on disk, several at once; it keeps one for each worker."""

    kinds = (Sleeper, WakeOrder)
    """Rows and notices of the commits that it must receive."""

    def __init__(self, command: Sequence[str]) -> None:
        """``command``: empty if there is none."""
        self._command = command
        self._orders: dict[str, WakeOrder] = {}  # by worker
        self._queue: asyncio.Queue[str] = asyncio.Queue()  # of workers; some may have no order any more
        self._left_asleep: set[str] = set()  # workers whose computers are woken on request only, as was logged

    def on_commit(self, effects: Effects) -> None:
        """Queue orders, drop outdated ones, and log each computer that is left asleep from now on."""
        for sleeper in effects.rows(Sleeper).values():
            if sleeper.waking_since is None:  # it has come, or was given up
                self._orders.pop(sleeper.worker, None)
            self._warn_if_left_asleep(sleeper)
        for order in effects.told(WakeOrder):
            if order.worker not in self._orders:
                self._queue.put_nowait(order.worker)
            self._orders[order.worker] = order

    def _warn_if_left_asleep(self, sleeper: Sleeper) -> None:
        name, most, is_resting = sleeper.worker, MAX_FAILED_WAKES, sleeper.is_asleep and sleeper.waking_since is None
        if not is_resting or max(sleeper.failed_wakes, sleeper.unused_wakes) < most:
            self._left_asleep.discard(name)
        elif name not in self._left_asleep:
            self._left_asleep.add(name)
            if sleeper.failed_wakes >= most:
                count, words = sleeper.failed_wakes, "did not wake %d times in a row"
            else:
                count, words = sleeper.unused_wakes, "was woken %d times in a row and got no task"
            log.warning(f"%s {words}: it is left asleep until `loopline wake %s`", name, count, name)

    async def run(self) -> None:
        """Carry out orders, until cancelled."""
        await asyncio.gather(*(self._carry_out_orders() for _ in range(_AT_ONCE)))

    async def _carry_out_orders(self) -> None:
        while True:
            order = self._orders.pop(await self._queue.get(), None)
            if order:
                await self._wake(order)

    async def _wake(self, order: WakeOrder) -> None:
        is_sent = self._send_packets(order)
        if not self._command or (is_sent and not order.has_failed):
            return
        try:
            await run(
                self._command,
                LOOPLINE_WAKE=order.worker,
                LOOPLINE_HARDWARE_ADDRESS=order.hardware_address,
                LOOPLINE_SUBNET=order.subnet,
            )
        except LooplineError as error:
            log.warning("wake_command did not wake %s: %s", order.worker, error.message)

    def _send_packets(self, order: WakeOrder) -> bool:
        """Send packets, unless only the command can help. True if they were sent within the computer's subnet."""
        if not order.subnet:
            return False
        try:
            is_near = magic_packets.is_in(order.subnet)
            if is_near or not self._command:
                magic_packets.send(order.hardware_address, order.subnet)
        except (OSError, ValueError) as error:
            log.warning("cannot send magic packets to %s in %s: %s", order.worker, order.subnet, error)
            return False
        return is_near
