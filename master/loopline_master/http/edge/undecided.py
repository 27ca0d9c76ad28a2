"""Undecided connections: accepted, but without a request yet, so that their user is unknown.

A connection is undecided until the head of its first request has arrived. There are ``MOST_UNDECIDED`` places; one
address may occupy a tenth of them. After ``YIELDS_AFTER_S`` a connection loses its place if another one needs it, and
it is closed in any case if its handshake or first request takes too long. Silent connections therefore delay others
by a second at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from weakref import WeakKeyDictionary, WeakSet

from loopline_master import timings

MOST_UNDECIDED = 500
"""Places; further connections wait in the system's queue."""
ONE_IN = 10
"""One address may hold 1/10 of the places."""
YIELDS_AFTER_S = 1.0
"""An honest handshake takes milliseconds; a thousand at once take a second."""
_IPV6_NETWORK = 64
"""Prefix length that identifies the owner of an IPv6 address: providers assign networks of at least this size."""


@dataclass(eq=False, slots=True)
class Newcomer:
    """A connection without a request."""

    group: str  # its address or network; empty: loopback or a proxy, which may have all places
    since: float  # by the loop's clock
    drop: Callable[[], object] = lambda: None  # closes it
    transport: asyncio.Transport | None = None  # once its handshake is over
    expires: asyncio.TimerHandle | None = None


class Undecided:
    """The undecided connections, oldest first."""

    def __init__(self) -> None:
        self._all: dict[Newcomer, None] = {}
        self._of: dict[str, dict[Newcomer, None]] = {}
        self._by_transport = WeakKeyDictionary[asyncio.Transport, Newcomer]()
        self._early = WeakSet[asyncio.Transport]()  # a request came before hand_over was called
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._all)

    def of_group(self, group: str) -> int:
        """Return the number of undecided connections of one address."""
        return len(self._of.get(group, ()))

    async def wait_for_place(self) -> None:
        """Return once there is a free place, closing the oldest connection if necessary."""
        while len(self._all) >= MOST_UNDECIDED:
            self._forget_closed()
            if len(self._all) < MOST_UNDECIDED or self.drop_oldest():
                return
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._yields_in_s(self._all)):
                    await self._changed.wait()

    def add(self, group: str) -> Newcomer | None:
        """Add an accepted connection; None if its address has too many and none of them can be dropped.

        The caller sets ``drop``.
        """
        own = self._of.get(group, {})
        if group and len(own) >= MOST_UNDECIDED // ONE_IN:
            self._forget_closed()
            own = self._of.get(group, {})
            if len(own) >= MOST_UNDECIDED // ONE_IN and not self._drop_first(own):
                return None
        newcomer = Newcomer(group, asyncio.get_running_loop().time())
        self._all[newcomer] = None
        self._of.setdefault(group, {})[newcomer] = None
        return newcomer

    def hand_over(self, newcomer: Newcomer, transport: asyncio.Transport) -> None:
        """Note that the handshake is over; the first request must come soon."""
        if transport in self._early:
            self._early.discard(transport)
            self.remove(newcomer)
        elif newcomer in self._all:
            newcomer.transport, newcomer.drop = transport, transport.abort
            self._by_transport[transport] = newcomer
            loop = asyncio.get_running_loop()
            newcomer.expires = loop.call_later(timings.FIRST_REQUEST_WITHIN_S, self._drop, newcomer)
        else:  # it has just lost its place
            transport.abort()

    def decide(self, transport: asyncio.Transport | None) -> None:
        """Note that a request has arrived on this connection, which is no longer undecided."""
        if transport is None:
            return
        newcomer = self._by_transport.get(transport)
        if newcomer is not None:
            self.remove(newcomer)
        elif not transport.is_closing():
            self._early.add(transport)

    def remove(self, newcomer: Newcomer) -> None:
        """Give up the place of a connection that is decided or closed."""
        if newcomer not in self._all:
            return
        del self._all[newcomer], self._of[newcomer.group][newcomer]
        if not self._of[newcomer.group]:
            del self._of[newcomer.group]
        if newcomer.expires is not None:
            newcomer.expires.cancel()
        if newcomer.transport is not None:
            self._by_transport.pop(newcomer.transport, None)
        self._changed.set()

    def drop_oldest(self) -> bool:
        """Close the oldest connection; False if there is none or it is too recent."""
        return self._drop_first(self._all)

    def _drop_first(self, some: dict[Newcomer, None]) -> bool:
        if not some or self._yields_in_s(some) > 0:
            return False
        self._drop(next(iter(some)))
        return True

    def _drop(self, newcomer: Newcomer) -> None:
        self.remove(newcomer)
        newcomer.drop()

    def _yields_in_s(self, some: dict[Newcomer, None]) -> float:
        return next(iter(some)).since + YIELDS_AFTER_S - asyncio.get_running_loop().time()

    def _forget_closed(self) -> None:
        for newcomer in [one for one in self._all if one.transport is not None and one.transport.is_closing()]:
            self.remove(newcomer)


def group_of(address: str) -> str:
    """Return the address or network whose connections are counted together; empty for loopback."""
    found = ip_address(address.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback:
        return ""
    return str(found) if found.version == 4 else str(ip_network((int(found), _IPV6_NETWORK), strict=False))
