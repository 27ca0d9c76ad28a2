"""The wing *transfers*: large files that go from worker to worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loopline_master.core.events import NetworkChanged, SnapshotWritten, TransfersPlanned
from loopline_master.core.kernel.door.mechanism import Handler, Tell
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.kernel_events import MasterStarted
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.wings.transfers import carrying
from loopline_master.core.wings.transfers.carrier import Carrier
from loopline_master.core.wings.transfers.data_delay import DataDelays
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory
from loopline_shared.protocol.transfers import PeerReport
from loopline_shared.protocol.worker_link import Assign, Report


class Transfers(Wing):
    """Awake as soon as a worker has, or fetches, a large file."""

    reported = ("peers",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._memory = TransferMemory()
        state.keep(self._memory)

    @property
    def is_awake(self) -> bool:
        return bool(self._memory.carriers)

    def entities(self) -> Mapping[type, Callable[[Any], None]]:
        return {Carrier: self._note}

    def restore(self, rows: Rows) -> None:
        self._memory.carriers |= {carrier.name: carrier for carrier in rows.of(Carrier)}
        if self.is_awake:
            self.state.data = DataDelays(self.state)

    def handlers(self) -> Mapping[type, Handler]:
        return {
            MasterStarted: self._begin,
            SnapshotWritten: self._resume,
            NetworkChanged: lambda event, _: carrying.change_network(self.state, event),
            TransfersPlanned: lambda event, tell: carrying.adopt(self.state, event, tell),
        }

    def parts(self) -> Mapping[str, Callable[[Worker, Any], None]]:
        return {"peers": self._hear}

    def memory(self) -> Mapping[str, Any]:
        transfers = self._memory.transfers
        return {"nodes": tuple(transfers.nodes.values()), "request": transfers.number}

    def _note(self, carrier: Carrier) -> None:
        is_first = not self._memory.carriers
        self._memory.carriers[carrier.name] = carrier
        self.state.effects.note(carrier.name, carrier)
        if is_first:
            self.state.data = DataDelays(self.state)
            self.state.wings.arrange()

    def _begin(self, event: MasterStarted, tell: Tell) -> None:
        carrying.begin(self.state)

    def _resume(self, event: SnapshotWritten, tell: Tell) -> None:
        carrying.resume(self.state, event.nodes, event.request)

    def _hear(self, worker: Worker, told: PeerReport) -> None:
        if self.state.settings.peers:
            carrying.hear(self.state, worker.name, told)

    def brings_news(self, worker: Worker, report: Report) -> bool:
        """True if a worker's large files have changed, are on their way to it, or on their way from it."""
        told = report.peers
        if told is None or not self.state.settings.peers:
            return False
        carrier = self._memory.carriers.get(worker.name)
        is_fetching = told.fetching or (carrier and (carrier.fetching or carrier.unheard_since is not None))
        is_serving = worker.name in self._memory.transfers.served
        return bool(is_fetching or told.faults or told.cached is not None or is_serving)

    def worker_left(self, name: str) -> None:
        carrying.forget(self.state, name)

    def due_at(self) -> float | None:
        return self._memory.transfers.overdue_at

    def expire(self) -> None:
        carrying.expire(self.state)

    def finish_step(self) -> None:
        """Request a plan if one is due, and forget workers that are gone."""
        if self._memory.transfers.is_due:
            carrying.ask(self.state)
        for name in self.state.effects.gone:
            if self._memory.carriers.pop(name, None) is not None:
                self.state.effects.rows(Carrier).pop(name, None)

    def assign(self, worker: Worker, assign: Assign) -> None:
        assign.peers = carrying.orders(self.state, worker.name)

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if the way of a file leads from worker to worker in a circle."""
        carriers = self._memory.carriers
        for carrier in carriers.values() if of is None else ():
            for file in carrier.fetching:
                name, way = carrier.name, [carrier.name]
                while name in carriers and (transfer := carriers[name].fetching.get(file)) and transfer.source:
                    name = transfer.source
                    assert name not in way, f"the file {file[:8]} goes round in a circle: {way}"
                    way.append(name)
