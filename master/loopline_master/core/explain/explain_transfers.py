"""Explanations of the large files on their way to a worker: source, rate, reason, and time left."""

from __future__ import annotations

from collections.abc import Collection

from loopline_master.core.kernel.state import State
from loopline_master.core.wings.transfers.assumed_network import MASTER
from loopline_master.core.wings.transfers.carrier import Carrier, Transfer
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory
from loopline_shared.rest.bodies import FileFlow, Reason

_MEGA = 1e6


def explain_transfers(state: State, worker: str, files: Collection[str] | None = None) -> list[Reason]:
    """Return a reason for each of these files that is on its way to a worker; None: for all of them."""
    carrier = state.own(TransferMemory).carriers.get(worker)
    if carrier is None:
        return []
    return [
        Reason(code="transfer", count=1, detail=f"file {file[:12]} {_on_its_way(state, carrier, file, transfer)}")
        for file, transfer in carrier.fetching.items()
        if files is None or file in files
    ]


def files_coming(state: State, worker: str, files: Collection[str] | None = None) -> list[FileFlow]:
    """Return the files on their way to a worker, of ``files`` or of all, with their expected progress."""
    carrier = state.own(TransferMemory).carriers.get(worker)
    return [
        FileFlow(
            sha256=file,
            source=transfer.source or MASTER,
            receiver=worker,
            rate_bytes_s=transfer.flows,
            have_bytes=transfer.size_bytes - int(transfer.left_bytes(state.now)),
            size_bytes=transfer.size_bytes,
        )
        for file, transfer in (carrier.fetching.items() if carrier else ())
        if files is None or file in files
    ]


def _on_its_way(state: State, carrier: Carrier, file: str, transfer: Transfer) -> str:
    left_bytes = transfer.left_bytes(state.now)
    share = 1 - left_bytes / max(1, transfer.size_bytes)
    rate = transfer.flows or transfer.rate
    eta = f", {left_bytes / rate:,.0f} s left" if rate else ""
    planned = f" (planned {transfer.rate / _MEGA:,.1f})" if transfer.rate else ""
    flow = f"{share:.0%} of {transfer.size_bytes / _MEGA:,.0f} MB at {transfer.flows / _MEGA:,.1f} MB/s{planned}{eta}"
    return f"comes to {carrier.name} {_from_whom(state, carrier, file, transfer)}: {flow}"


def _from_whom(state: State, carrier: Carrier, file: str, transfer: Transfer) -> str:
    failed = sorted(name for name in carrier.failed if carrier.avoids(name, state.now))
    but = f", and not from {', '.join(failed)}, which failed it lately" if failed else ""
    if transfer.source is None:
        return f"from the master until it is planned{but}"
    if not transfer.rate:
        return f"from {_named(transfer.source)} by the plan, once others have it that go first{but}"
    if transfer.source != MASTER:
        source = state.own(TransferMemory).carriers.get(transfer.source)
        return f"from worker {transfer.source}, which {_has(source, file)}{but}"
    others = sum(file in one.has for one in state.own(TransferMemory).carriers.values())
    why = (
        f"though {others} workers have it, for that is the better way by the plan"
        if others
        else "as no worker has it"
    )
    return f"from the master, {why}{but}"


def _has(source: Carrier | None, file: str) -> str:
    """Return a source's part of a file in words; None: it was forgotten since the plan was made."""
    if source is None:
        return "is gone"
    return "has it" if file in source.has else "passes on what it receives"


def _named(source: str) -> str:
    return "the master" if source == MASTER else f"worker {source}"
