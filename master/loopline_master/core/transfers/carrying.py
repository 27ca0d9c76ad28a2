"""Carrying in the live scheduler: who has what and wants what, as Reports tell; plans asked for and taken in.

The planner is no part of a step. Where something has changed, ``ask`` has an effect ask for a plan; it is made beside
the loop and comes back as an event, ``TransfersPlanned``, which the log keeps: a replay reads the plan, and calls no
solver. Meanwhile transfers go on by the plan that was. A plan that no longer fits is dropped and asked for again.

At most one request is under way. Where no worker fetches a large file, nothing here is called but ``hear``, with
nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from loopline_master.core.effects import Declined, Done, Reply
from loopline_master.core.events import NetworkChanged, TransfersPlanned
from loopline_master.core.transfers.assumed_network import MASTER
from loopline_master.core.transfers.carrier import (
    LEAST_RATE,
    OVERDUE_S,
    Carrier,
    NumberedRequest,
    Transfer,
    TransferState,
)
from loopline_master.core.transfers.pipeline import Pipeline

if TYPE_CHECKING:
    from loopline_master.core.state import State
    from loopline_shared.protocol.transfers import PeerReport

_SAME_RATE = 0.02
"""A rate that changes by less of it is left as it is: no frame is sent for that."""

Tell = Callable[[str], None]
"""Has a worker sent an Assign."""


def begin(state: State) -> None:
    """Begin anew with the carriers that are stored, as the master has started. Without peers they are forgotten."""
    state.transfers = TransferState()
    for name in [] if state.settings.peers else list(state.carriers):
        forget(state, name)
    state.transfers.is_due = any(carrier.fetching for carrier in state.carriers.values())


def hear(state: State, name: str, told: PeerReport) -> None:
    """Take in what a worker's Report says of files."""
    carrier = state.carriers.get(name)
    if carrier is None:
        if not (told.cached or told.fetching):
            return
        carrier = Carrier(name)
    has, before = carrier.has, carrier.fetching
    if told.cached is not None:
        has = {file.sha256: file.size_bytes for file in told.cached}
    elif not (told.fetching or before):
        return
    fetching = {}
    for one in told.fetching:
        known = before.get(one.sha256)
        if known is None:
            known = Transfer(one.size_bytes, state.now, one.have_bytes, state.now)
        fetching[one.sha256] = known.seen(one.have_bytes, state.now)
    if has == carrier.has and fetching == before:
        return
    state.transfers.is_due |= has != carrier.has or fetching.keys() != before.keys()
    carrier.has, carrier.fetching = has, fetching
    state.put(carrier)


def forget(state: State, name: str) -> None:
    """Forget what a worker has and wants: it has gone, or comes anew and will tell."""
    carrier = state.carriers.get(name)
    if carrier is not None and carrier.is_known:
        carrier.has, carrier.fetching = {}, {}
        state.put(carrier)
        state.transfers.is_due = True


def change_network(state: State, event: NetworkChanged) -> Reply:
    """Take in news of the network; declined, with the reason, if that would be no tree."""
    try:
        state.transfers.change(event.nodes, event.gone)
    except ValueError as error:
        return Declined(400, "bad_network", f"this is no network: {error}", "the one before stays in force")
    return Done()


def ask(state: State) -> None:
    """Ask for a plan if something has changed, somebody wants a file, and no other request is under way."""
    transfers = state.transfers
    if transfers.is_pending or not transfers.is_due:
        return
    transfers.is_due = False
    carriers = sorted((one for one in state.carriers.values() if one.is_known), key=lambda one: one.name)
    if not any(carrier.fetching for carrier in carriers):
        transfers.overdue_at = None
        return
    transfers.number += 1
    transfers.is_pending, transfers.is_outdated = True, False
    state.effects.asked = NumberedRequest(
        transfers.number,
        state.now,
        transfers.network(state.carriers),
        tuple((one.name, one.has, one.fetching) for one in carriers if transfers.is_host(one.name)),
    )


def let_time_pass(state: State) -> None:
    """Ask anew when a transfer has waited for too long."""
    transfers = state.transfers
    if transfers.overdue_at is not None and transfers.overdue_at <= state.now:
        transfers.overdue_at, transfers.is_due = None, True


def adopt(state: State, event: TransfersPlanned, tell: Tell) -> Reply:
    """Take in a plan, unless what has changed since it was asked for contradicts it: then it is asked for again."""
    transfers = state.transfers
    if not transfers.is_pending or event.number != transfers.number:
        return Done()
    transfers.is_pending = False
    if transfers.is_outdated or not all(_holds(state, line) for line in event.pipelines):
        transfers.is_due = True
        return Done()
    planned: dict[tuple[str, str], tuple[str, float]] = {}
    for line in event.pipelines:
        for source, host in zip(line.hosts, line.hosts[1:], strict=False):
            planned[host, line.file] = source, line.rate
    for carrier in state.carriers.values():
        if carrier.fetching and _replan(state, carrier, planned):
            tell(carrier.name)
    transfers.overdue_at = _overdue_at(state)
    return Done()


def _holds(state: State, line: Pipeline) -> bool:
    """True if all hosts of a line still have its file or want it, or have it by now."""
    carriers, file, source, receivers = state.carriers, line.file, line.hosts[0], line.hosts[1:]
    names = receivers if source == MASTER else line.hosts
    return all(name in carriers and (file in carriers[name].fetching or file in carriers[name].has) for name in names)


def _replan(state: State, carrier: Carrier, planned: dict[tuple[str, str], tuple[str, float]]) -> bool:
    """Put a carrier's transfers under the plan. True if that changes anything."""
    changed = {}
    for file, transfer in carrier.fetching.items():
        source, rate = planned.get((carrier.name, file), (None, 0.0))
        is_same = source == transfer.source and abs(rate - transfer.rate) <= _SAME_RATE * transfer.rate
        if not is_same:
            changed[file] = transfer.planned(source, rate, state.now)
    if changed:
        carrier.fetching = carrier.fetching | changed
        state.put(carrier)
    return bool(changed)


def _overdue_at(state: State) -> float | None:
    """Return when the next transfer that waits will have waited for too long; None if there is none."""
    waiting = (
        transfer.since + OVERDUE_S
        for carrier in state.carriers.values()
        for transfer in carrier.fetching.values()
        if transfer.rate <= LEAST_RATE
    )
    return min((at for at in waiting if at > state.now), default=None)
