"""Carrying in the live scheduler: the workers' files and fetches, as reported; requests for plans, and their answers.

The planner is not part of a step. After a change, ``ask`` requests a plan by an effect; the plan is made outside the
step and comes back as an event, ``TransfersPlanned``, which is logged: a replay reads the plan without calling a
solver. Until then transfers continue by the previous plan. A plan that no longer fits is dropped and requested again.
At most one request is pending. While no worker fetches a large file, only ``hear`` is called here, and has nothing to
do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from loopline_master.core.events import NetworkChanged, TransfersPlanned
from loopline_master.core.kernel.door.mechanism import Tell
from loopline_master.core.kernel.effects import Declined, Done, Reply
from loopline_master.core.wings.transfers.assumed_network import MASTER
from loopline_master.core.wings.transfers.carrier import (
    LAG_BYTES,
    LEAST_RATE,
    OVERDUE_S,
    Carrier,
    NumberedRequest,
    Transfer,
    TransferState,
)
from loopline_master.core.wings.transfers.pipeline import Pipeline
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory
from loopline_shared.pieces import train_bytes
from loopline_shared.protocol.transfers import (
    MAX_DIALS,
    MAX_FETCHING,
    MAX_SOURCES,
    Dial,
    FaultKind,
    FileFetch,
    FileSource,
    Grant,
    PeerOrders,
)

if TYPE_CHECKING:
    from loopline_master.core.kernel.state import State
    from loopline_master.core.wings.transfers.network import NetworkNode
    from loopline_shared.protocol.transfers import PeerFault, PeerReport

_AVOIDED_S = {
    FaultKind.UNREACHABLE: 600.0,
    FaultKind.REFUSED: 10.0,
    FaultKind.SILENT: 30.0,
    FaultKind.SLOW: 120.0,
    FaultKind.WRONG_CONTENT: 3600.0,
}
"""Seconds until a source that failed a receiver may be named to it again."""
_AWAITED_S = 5.0
"""Seconds that a new receiver waits for its first plan."""
_SURELY_MORE_BYTES = 4 * 2**20
"""Minimum lead of a source that could have passed something on to a waiting receiver: more than may have just
arrived, or be under way."""
_TRAINS_WITHIN_S = 5.0
"""Time after its first request during which a receiver may be limited to first pieces."""
_SAME_RATE = 0.02
"""A rate that changes by a smaller share is left as it is, which saves a frame."""


def begin(state: State) -> None:
    """Start again from the stored carriers after a start of the master. Without peers they are forgotten."""
    state.own(TransferMemory).transfers = TransferState()
    for name in [] if state.settings.peers else list(state.own(TransferMemory).carriers):
        forget(state, name)
    state.own(TransferMemory).transfers.is_due = any(
        carrier.fetching for carrier in state.own(TransferMemory).carriers.values()
    )
    _note_served(state)


def resume(state: State, nodes: Iterable[NetworkNode], request: int) -> None:
    """Continue with this network from the carriers' rows; an unanswered request is made again."""
    state.own(TransferMemory).transfers = TransferState()
    state.own(TransferMemory).transfers.set_nodes({node.name: node for node in nodes})
    state.own(TransferMemory).transfers.number = request
    state.own(TransferMemory).transfers.is_due = any(
        carrier.fetching for carrier in state.own(TransferMemory).carriers.values()
    )
    _note_served(state)


def hear(state: State, name: str, told: PeerReport) -> None:
    """Process the files in a worker's Report."""
    carrier = state.own(TransferMemory).carriers.get(name)
    if carrier is None:
        if not (told.cached or told.fetching):
            return
        carrier = Carrier(name)
    if carrier.unheard_since is not None:
        carrier.unheard_since = None
        state.own(TransferMemory).transfers.is_due = state.own(TransferMemory).transfers.is_outdated = True
        state.put(carrier)
    if told.faults:
        _note_faults(state, carrier, told)
    has, before = carrier.has, carrier.fetching
    if told.cached is not None:
        has = {file.sha256: file.size_bytes for file in told.cached}
    elif not (told.fetching or before):
        return
    fetching = _fetching(state, before, told)
    if has == carrier.has and fetching == before:
        return
    if has != carrier.has or fetching.keys() != before.keys():
        state.own(TransferMemory).transfers.is_due = True
        state.own(TransferMemory).transfers.forget_copies()
    carrier.has, carrier.fetching = has, fetching
    state.put(carrier)


def _fetching(state: State, before: Mapping[str, Transfer], told: PeerReport) -> dict[str, Transfer]:
    """Return a worker's transfers after its Report."""
    fetching = {}
    for one in told.fetching:
        known = before.get(one.sha256)
        if known is None:
            fetching[one.sha256] = Transfer(one.size_bytes, state.now, one.have_bytes, state.now, one.rate_bytes_s)
        elif (one.have_bytes, one.rate_bytes_s) == (known.have_bytes, known.flows):
            fetching[one.sha256] = known
        else:
            fetching[one.sha256] = replace(known, have_bytes=one.have_bytes, at=state.now, flows=one.rate_bytes_s)
    return fetching


def _note_faults(state: State, carrier: Carrier, told: PeerReport) -> None:
    """Note the sources that failed a receiver: they are not named to it for a while. Liars are quarantined.

    If the receiver has an open port, a source that it could not reach is left alone: that source will dial it.
    """
    failed = {name: until for name, until in carrier.failed.items() if until > state.now}
    for fault in told.faults:
        if fault.kind is FaultKind.UNREACHABLE and told.port is not None:
            continue
        if fault.source not in failed and not _others_failed(state, failed):
            _believe(state, told, fault)
        failed[fault.source] = max(failed.get(fault.source, 0.0), state.now + _AVOIDED_S[fault.kind])
        worker = state.workers.get(fault.source)
        if fault.kind is FaultKind.WRONG_CONTENT and worker is not None:
            reason = f"it sent wrong bytes of the file {fault.sha256[:12]} to worker {carrier.name}"
            for accuse in state.wings.accuse:
                accuse(worker, reason)
    if failed.keys() != carrier.failed.keys():
        state.own(TransferMemory).transfers.is_due = True
    if failed != carrier.failed:
        carrier.failed = failed
        state.put(carrier)


def _others_failed(state: State, failed: Iterable[str]) -> bool:
    """True if sources that still exist have failed a receiver before: the fault may be its own."""
    return any(
        name in state.own(TransferMemory).carriers and state.own(TransferMemory).carriers[name].is_known
        for name in failed
    )


def _believe(state: State, told: PeerReport, fault: PeerFault) -> None:
    """Mark a source as mute for all receivers, if its accuser's report of silence is supported by the master's view.

    A source that answers is mute if it has more of the file than the accuser; otherwise it waits for its own source.
    A source without any answer is mute until its next Report.
    """
    source = state.own(TransferMemory).carriers.get(fault.source)
    if fault.kind is not FaultKind.SILENT or fault.lives is None or source is None:
        return
    if not fault.lives:
        source.unheard_since = state.now
    elif _has_more(source, told, fault.sha256):
        source.mute_until = state.now + _AVOIDED_S[fault.kind]
    else:
        return
    state.put(source)
    state.own(TransferMemory).transfers.is_due = True


def _has_more(source: Carrier, told: PeerReport, file: str) -> bool:
    """True if a worker has clearly more of a file than the reporting one."""
    transfer = source.fetching.get(file)
    have_bytes = max((one.have_bytes for one in told.fetching if one.sha256 == file), default=0)
    return file in source.has or (transfer is not None and transfer.have_bytes >= have_bytes + _SURELY_MORE_BYTES)


def forget(state: State, name: str) -> None:
    """Forget a worker's files and fetches: it has gone, or joins again and will report them."""
    carrier = state.own(TransferMemory).carriers.get(name)
    if carrier is not None and carrier.is_known:
        carrier.has, carrier.fetching, carrier.failed = {}, {}, {}
        carrier.mute_until = carrier.unheard_since = None
        state.put(carrier)
        state.own(TransferMemory).transfers.is_due = True
        state.own(TransferMemory).transfers.forget_copies()


def change_network(state: State, event: NetworkChanged) -> Reply:
    """Apply changes of the network; declined, with the reason, if the result is not a tree."""
    try:
        state.own(TransferMemory).transfers.change(event.nodes, event.gone)
    except ValueError as error:
        return Declined(400, "bad_network", f"this is no network: {error}", "the one before stays in force")
    return Done()


def ask(state: State) -> None:
    """Request a plan if something has changed, a worker wants a file, and no other request is pending."""
    transfers = state.own(TransferMemory).transfers
    if transfers.is_pending or not transfers.is_due:
        return
    transfers.is_due = False
    carriers = sorted(
        (one for one in state.own(TransferMemory).carriers.values() if one.is_known), key=lambda one: one.name
    )
    if not any(carrier.fetching for carrier in carriers):
        transfers.overdue_at = None
        return
    known = {one.name for one in carriers}  # the others have nothing to take
    transfers.number += 1
    transfers.is_pending, transfers.is_outdated = True, False
    request = NumberedRequest(
        transfers.number,
        state.now,
        transfers.network(state.own(TransferMemory).carriers),
        tuple((one.name, one.has, one.fetching) for one in carriers if transfers.is_host(one.name)),
        avoided={one.name: avoided for one in carriers if (avoided := _avoided(one, state.now) & known)},
        mute=_mute(state, carriers),
        unheard=frozenset(one.name for one in carriers if one.unheard_since is not None),
    )
    state.effects.tell(request)


def _avoided(carrier: Carrier, now: float) -> frozenset[str]:
    return frozenset(source for source in carrier.failed if carrier.avoids(source, now))


def _mute(state: State, carriers: Iterable[Carrier]) -> frozenset[str]:
    """Return the workers that pass nothing on: in quarantine, mute, or accused by several receivers."""
    accused = Counter(source for carrier in carriers for source in _avoided(carrier, state.now))
    return frozenset(
        name
        for name, carrier in state.own(TransferMemory).carriers.items()
        if accused[name] > 1 or carrier.is_mute(state.now) or not _is_believed(state, name)
    )


def _is_believed(state: State, name: str) -> bool:
    worker = state.workers.get(name)
    return worker is None or worker.quarantined_until is None


def _is_mute(state: State, name: str) -> bool:
    carrier = state.own(TransferMemory).carriers.get(name)
    return carrier is not None and carrier.is_mute(state.now)


def expire(state: State) -> None:
    """Request a plan when a transfer has waited for too long."""
    transfers = state.own(TransferMemory).transfers
    if transfers.overdue_at is not None and transfers.overdue_at <= state.now:
        transfers.overdue_at, transfers.is_due = None, True


def adopt(state: State, event: TransfersPlanned, tell: Tell) -> Reply:
    """Adopt a plan, unless changes since its request contradict it: then another is requested."""
    transfers = state.own(TransferMemory).transfers
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
    for carrier in state.own(TransferMemory).carriers.values():
        if carrier.fetching and carrier.unheard_since is None and _replan(state, carrier, planned):
            tell(carrier.name)
    for name in sorted(transfers.held & state.workers.keys()):
        tell(name)  # it may take more than its first pieces
    transfers.held.clear()
    transfers.overdue_at = _overdue_at(state)
    before = transfers.served
    _note_served(state)
    for name in sorted((before.keys() | transfers.served.keys()) - {MASTER}):
        if before.get(name) != transfers.served.get(name) and name in state.workers:
            tell(name)
    return Done()


def _holds(state: State, line: Pipeline) -> bool:
    """True if all hosts of a line want or have its file, and each that passes it on is trusted and not mute."""
    carriers, file, source, receivers = state.own(TransferMemory).carriers, line.file, line.hosts[0], line.hosts[1:]
    names = receivers if source == MASTER else line.hosts
    return all(_is_believed(state, name) and not _is_mute(state, name) for name in line.hosts[:-1]) and all(
        name in carriers and (file in carriers[name].fetching or file in carriers[name].has) for name in names
    )


def _replan(state: State, carrier: Carrier, planned: dict[tuple[str, str], tuple[str, float]]) -> bool:
    """Set a carrier's transfers as planned. True if that changes anything."""
    changed = {}
    for file, transfer in carrier.fetching.items():
        source, rate = planned.get((carrier.name, file), (None, 0.0))
        is_same = source == transfer.source and abs(rate - transfer.rate) <= _SAME_RATE * transfer.rate
        if not is_same:
            changed[file] = replace(transfer, source=source, rate=rate)
    if changed:
        carrier.fetching = carrier.fetching | changed
        state.put(carrier)
    return bool(changed)


def _note_served(state: State) -> None:
    """Note the receivers of each worker under the plan."""
    served = defaultdict(list)
    for name in sorted(state.own(TransferMemory).carriers):
        for file, transfer in state.own(TransferMemory).carriers[name].fetching.items():
            if transfer.source is not None:
                served[transfer.source].append((file, name))
    state.own(TransferMemory).transfers.served = dict(served)


def orders(state: State, name: str) -> PeerOrders | None:
    """Return a worker's sources and rates for each file, and its receivers; None if it has none.

    The hosts before its source in the line are named after it, so that a dead source is bypassed without a new plan.
    Addresses and secrets are filled in outside.
    """
    carrier, serves = (
        state.own(TransferMemory).carriers.get(name),
        state.own(TransferMemory).transfers.served.get(name, ()),
    )
    if carrier is None or not (carrier.fetching or serves):
        return None
    fetch = tuple(_fetch(state, carrier, file, transfer) for file, transfer in carrier.fetching.items())
    takers = ((file, receiver) for file, receiver in serves if _takes(state, receiver, file, name))
    dial = tuple(Dial(Grant(file, name, receiver, 0.0)) for file, receiver in takers)
    return PeerOrders(fetch[:MAX_FETCHING], dial[:MAX_DIALS]) if fetch or dial else None


def _takes(state: State, receiver: str, file: str, source: str) -> bool:
    carrier = state.own(TransferMemory).carriers.get(receiver)  # None: forgotten since the plan was made
    transfer = carrier.fetching.get(file) if carrier is not None else None
    return transfer is not None and transfer.source == source


def _fetch(state: State, carrier: Carrier, file: str, transfer: Transfer) -> FileFetch:
    is_awaited = state.own(TransferMemory).transfers.is_pending and transfer.since + _AWAITED_S > state.now
    if transfer.source is None:
        return FileFetch(file, (), waits=is_awaited)
    names: list[str] = []
    source: str | None = transfer.source
    while source and source not in (MASTER, carrier.name, *names) and len(names) < MAX_SOURCES:
        names.append(source)
        before = (
            state.own(TransferMemory).carriers[source].fetching.get(file)
            if source in state.own(TransferMemory).carriers
            else None
        )
        source = before.source if before else None
    sources = tuple(
        FileSource(one) for one in names if not carrier.avoids(one, state.now) and not _is_mute(state, one)
    )
    until, train = None, train_bytes(transfer.size_bytes, is_from_master=transfer.source == MASTER)
    is_new = transfer.have_bytes <= max(LAG_BYTES, train) and state.now < transfer.since + _TRAINS_WITHIN_S
    if is_new and _is_showing(state, file):
        until = train
        state.own(TransferMemory).transfers.held.add(carrier.name)
    return FileFetch(file, sources, transfer.rate or None, waits=not transfer.rate, until_bytes=until)


def _is_showing(state: State, file: str) -> bool:
    """True while first pieces of a file travel alone, because the place of some receiver is a guess."""
    memory = state.own(TransferMemory)
    return any(
        name in memory.carriers
        and file in memory.carriers[name].fetching
        and state.now < memory.carriers[name].fetching[file].since + _TRAINS_WITHIN_S
        for name in memory.transfers.guesses
    )


def _overdue_at(state: State) -> float | None:
    """Return when the next waiting transfer will have waited for too long; None if there is none."""
    waiting = (
        transfer.since + OVERDUE_S
        for carrier in state.own(TransferMemory).carriers.values()
        for transfer in carrier.fetching.values()
        if transfer.rate <= LEAST_RATE
    )
    return min((at for at in waiting if at > state.now), default=None)
