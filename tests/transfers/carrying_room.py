"""A grid of workers that tell of files: the real scheduler, its rows, and a planner that answers when a test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopline_master.core.events import (
    Batch,
    Event,
    MasterStarted,
    SchedulerSettings,
    TransfersPlanned,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
)
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.invariants import check
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.transfers.carrier import NumberedRequest, Transfer
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory, asked
from loopline_master.transfers.solver import FILLING
from loopline_shared.model import AttemptId, Held, Load
from loopline_shared.protocol.transfers import CachedFile, Fetching, PeerFault, PeerReport
from loopline_shared.protocol.worker_link import Assign, Report
from loopline_simulator.full import ending
from loopline_simulator.full.store import MemoryStore
from tests.scheduling.driver import facts

MIB = 2**20
SIZE = 64 * MIB
A, B = "a" * 64, "b" * 64


class CarryingRoom:
    """``tell`` has a worker report, joined before if it is not there; each step is checked and committed."""

    def __init__(self, **settings: Any) -> None:
        self.settings = SchedulerSettings(**({"peers": True} | settings))
        self.store, self.now, self.sessions = MemoryStore(), 1000.0, 0
        self.open: dict[str, list[int]] = {}  # session, and the last Report in it
        self.asked: NumberedRequest | None = None
        self.assigns: dict[str, Assign] = {}  # the last of each worker
        self.start()

    def start(self) -> Effects:
        """Start the master, also again, from its rows."""
        self.scheduler = Scheduler(self.store.snapshot())
        self.open.clear()
        self.asked = None
        return self.step(MasterStarted(self.settings))

    def step(self, *events: Event, after_s: float = 0.01) -> Effects:
        self.now += after_s
        effects = self.scheduler.step(events, self.now)
        self.asked = asked(effects) or self.asked
        self.assigns |= effects.assigns
        check(self.scheduler.state)
        self.store.commit(Batch(self.now, [*events]), effects)
        ending.check_restart_changes_nothing(self.scheduler.state, Scheduler(self.store.snapshot()).state)
        return effects

    def join(self, name: str, boot: str = "") -> Effects:
        self.sessions += 1
        self.open[name] = [self.sessions, 0]
        return self.step(WorkerJoined(name, self.sessions, boot or f"boot of {name}", facts()))

    def tell(
        self,
        name: str,
        *,
        wants: Sequence[str] | dict[str, int] = (),
        has: Sequence[str] | None = None,
        faults: Sequence[PeerFault] = (),
        port: int | None = 7462,
        holding: Sequence[AttemptId] = (),
    ) -> Effects:
        """``wants``: files, or how many bytes of each are there; ``has``: None says nothing of it."""
        if name not in self.open:
            self.join(name)
        self.open[name][1] += 1
        had = wants if isinstance(wants, dict) else dict.fromkeys(wants, 0)
        fetching = tuple(Fetching(file, SIZE, count) for file, count in had.items())
        cached = None if has is None else tuple(CachedFile(file, SIZE) for file in has)
        told = PeerReport(port, fetching, cached, tuple(faults))
        session, number = self.open[name]
        return self.step(
            WorkerReported(name, session, Report(number, number, tuple(map(Held, holding)), (), Load(1), peers=told))
        )

    def leave(self, name: str) -> Effects:
        return self.step(WorkerLeft(name, self.open.pop(name)[0]))

    def plan(self) -> TransfersPlanned:
        """Return the requested plan, without stepping the scheduler."""
        assert self.asked, "no plan is asked for"
        asked, self.asked = self.asked, None
        made = FILLING.plan(asked.request())
        return TransfersPlanned(asked.number, asked.answer(made), made.objective)

    def answer(self) -> Effects:
        return self.step(self.plan())

    def settle(self) -> None:
        """Answer until no plan is asked for."""
        for _ in range(5):
            if self.asked is None:
                return
            self.answer()
        raise AssertionError("the scheduler asks for ever")

    def transfer(self, name: str, file: str = A) -> Transfer | None:
        carrier = self.scheduler.state.own(TransferMemory).carriers.get(name)
        return carrier.fetching.get(file) if carrier else None

    def sources(self, file: str = A) -> dict[str, str | None]:
        """From whom each worker takes the file by the plan in force."""
        carriers = self.scheduler.state.own(TransferMemory).carriers.values()
        return {one.name: one.fetching[file].source for one in carriers if file in one.fetching}
