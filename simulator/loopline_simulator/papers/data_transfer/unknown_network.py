"""Simulation of one file that goes to all hosts of a network without a description.

The scheduler, its planner and its learning run as they do live, over flows that share the links of that network.

Each flow is a fluid of its own here, and pieces arrive in order: a receiver is never ahead of its source. Flows share
links by max-min fairness. Reports arrive as workers send them, with the readings of their meters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from loopline_master.core.events import (
    Batch,
    Event,
    MasterStarted,
    SchedulerSettings,
    TransfersPlanned,
    WorkerJoined,
    WorkerReported,
)
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.transfers.assumed_network import MASTER, assumed_switches
from loopline_master.core.wings.transfers.carrier import NumberedRequest
from loopline_master.core.wings.transfers.filling import fill
from loopline_master.core.wings.transfers.network import Network
from loopline_master.core.wings.transfers.programme import Constraint, LinearProgramme
from loopline_master.core.wings.transfers.transfer_memory import asked
from loopline_master.peers.exchange import trains
from loopline_master.peers.flow_samples import FlowSamples
from loopline_master.peers.learned_network import LearnedNetwork, cards
from loopline_master.transfers.network_file import NetworkFile
from loopline_master.transfers.solver import best_solver
from loopline_shared.model import Facts, Load
from loopline_shared.pieces import LEAST_PIECE_BYTES
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.protocol.transfers import CachedFile, FaultKind, Fetching, FileFetch, PeerFault, PeerReport
from loopline_shared.protocol.worker_link import Report
from loopline_shared.rest.bodies.network import FileFlow
from loopline_simulator.full.store import MemoryStore
from loopline_simulator.streams import Generator, stream
from loopline_worker.peers.flow_meter import FlowMeter

FILE = "f" * 64
_STEP_S = 0.05
_PLAN_S = 0.1
"""Time from the request for a plan to the plan."""
_LOOK_EVERY_S = 0.5
_PATIENCE_S, _LINE_PATIENCE_S, _FORGIVEN_AFTER_S = 1.2, 0.5, 5.0
"""Time until a source without new pieces is left; extra time for each worker before it in the line; forgiveness."""
_TELL_FIRST_S, _TELL_GROWTH, _TELL_EVERY_S = 0.1, 1.25, 1.0
"""Pauses between the master's looks at the flows, and between a worker's Reports, as they are live."""


@dataclass(slots=True)
class Receiver:
    """A worker that wants the file."""

    name: str
    number: int  # of its session
    meter: FlowMeter
    have: float = 0.0  # bytes
    order: FileFetch | None = None
    source: str | None = None  # current one
    counted: float = 0.0  # bytes that its meter knows
    busy_s: float = 0.0  # of the piece that is coming
    is_late: bool = False
    done_at: float | None = None
    seq: int = 0
    report_at: float = 0.0
    pause_s: float = _TELL_FIRST_S
    told: Fetching | None = None
    starved_s: float = 0.0
    blamed: dict[str, float] = field(default_factory=dict)
    faults: list[PeerFault] = field(default_factory=list)


class UnknownNetwork:
    """A run. ``truth`` is the real network; ``links`` is the workers' reports about their cards.

    An operator's ``file`` describes the network. Without ``learns``, the initial assumption is kept.
    """

    def __init__(
        self,
        truth: Network,
        links: Mapping[str, HostLink | None],
        size_bytes: int,
        seed: int = 0,
        *,
        file: NetworkFile | None = None,
        learns: bool = True,
        noise: float = 0.07,
    ) -> None:
        self.now = 0.0
        self.faults = 0  # sources that were called silent
        self.plans: list[tuple[float, TransfersPlanned]] = []
        self.carried: dict[int, float] = {}
        """Bytes that each direction of the true network has carried, by its number."""
        self._truth, self._links, self._size = truth, links, size_bytes
        self._solver, self._noise, self._learns = best_solver(), noise, learns
        self._chance: Generator = stream(seed, "rates")
        self._store = MemoryStore()
        self._scheduler = Scheduler(self._store.snapshot())
        self._planning: tuple[float, NumberedRequest] | None = None
        self.learned = LearnedNetwork(file, FlowSamples())
        self._looked_at = 0.0
        self._receivers: dict[str, Receiver] = {}
        self._step(MasterStarted(SchedulerSettings(peers=True)))
        for number, (name, link) in enumerate(sorted(links.items()), 1):
            one = self._receivers[name] = Receiver(name, number, FlowMeter(lambda: self.now))
            self._step(WorkerJoined(name, number, f"boot of {name}", _facts(link)))
            one.report_at = float(self._chance.uniform(0.0, 0.3))
        self._look()

    def run(self, within_s: float = 1000.0) -> dict[str, float]:
        """Return when each host has the file. Raises RuntimeError if that takes too long."""
        while any(one.done_at is None for one in self._receivers.values()):
            if self.now > within_s:
                raise RuntimeError(f"not done within {within_s:g} s")
            self._let_flow()
            self.now += _STEP_S
            for one in self._receivers.values():
                if one.report_at <= self.now:
                    self._report(one)
            if self._planning and self._planning[0] <= self.now:
                self._answer(self._planning[1])
            if self.now >= self._looked_at + _LOOK_EVERY_S:
                self._look()
        return {one.name: one.done_at or 0.0 for one in self._receivers.values()}

    # Master.

    def _step(self, *events: Event) -> None:
        effects = self._scheduler.step(events, self.now + 1000.0)
        self._store.commit(Batch(self.now + 1000.0, [*events]), effects)
        if request := asked(effects):
            self._planning = self.now + _PLAN_S, request
        self._obey(effects)

    def _answer(self, asked: NumberedRequest) -> None:
        self._planning = None
        made = self._solver.plan(asked.request())
        planned = TransfersPlanned(asked.number, asked.answer(made), made.objective)
        self.plans.append((self.now, planned))
        self._step(planned)

    def _look(self) -> None:
        """Learn from the flows as they were reported last."""
        self._looked_at = self.now
        told = [(one.name, one.told) for one in self._receivers.values() if one.told]
        flows = [
            FileFlow(
                sha256=FILE, source=one.source or MASTER, receiver=name, rate_bytes_s=one.rate_bytes_s,
                have_bytes=one.have_bytes, size_bytes=self._size, is_free=one.is_free,
            )
            for name, one in told
        ]  # fmt: skip
        swift = frozenset((one.source or MASTER, name) for name, one in told if one.is_swift)
        found = trains({name: (one,) for name, one in told})
        if self._learns and self.learned.observe(self.now, self._links, flows, swift, found):
            self.learned.samples.learn_now(assumed_switches(self._links), cards(self._links))
        if event := self.learned.change(self.now, self._links, flows):
            self._step(event)

    # Workers.

    def _report(self, one: Receiver) -> None:
        one.seq += 1
        fetching: tuple[Fetching, ...] = ()
        cached = None
        if one.done_at is None:
            one.told = self._fetching(one)
            fetching = (one.told,)
            one.report_at, one.pause_s = self.now + one.pause_s, min(_TELL_GROWTH * one.pause_s, _TELL_EVERY_S)
        else:
            one.told, one.report_at = None, inf
            cached = (CachedFile(FILE, self._size),)
        told = PeerReport(7462, fetching, cached, tuple(one.faults))
        self.faults += len(one.faults)
        one.faults = []
        self._step(WorkerReported(one.name, one.number, Report(one.seq, one.seq, (), (), Load(1), peers=told)))

    def _fetching(self, one: Receiver) -> Fetching:
        read = one.meter.read()
        return Fetching(
            FILE, self._size, int(one.have), None if one.source == MASTER else one.source,
            rate_bytes_s=read.rate_bytes_s * float(self._chance.uniform(1.0 - self._noise, 1.0)),
            is_free=read.is_free, is_swift=read.is_swift, train_bytes_s=one.meter.train_bytes_s,
        )  # fmt: skip

    def _obey(self, effects: Effects) -> None:
        for name, assign in effects.assigns.items():
            orders = assign.peers.fetch if assign.peers else ()
            self._receivers[name].order = next((order for order in orders if order.sha256 == FILE), None)

    def _source_of(self, one: Receiver) -> str | None:
        """Return the source of a worker: the first one in its orders that is not blamed, else the master."""
        if one.order is None or one.order.waits:
            return None
        names = [source.worker for source in one.order.sources]
        return next((name for name in names if one.blamed.get(name, 0.0) <= self.now), MASTER)

    def _mind_starving(self, one: Receiver) -> None:
        """Have a worker leave a source that has had nothing for too long."""
        one.starved_s += _STEP_S
        names = [source.worker for source in one.order.sources] if one.order else []
        if one.source in names:
            behind = len(names) - 1 - names.index(one.source)
            if one.starved_s > _PATIENCE_S + _LINE_PATIENCE_S * behind:
                one.blamed[one.source] = self.now + _FORGIVEN_AFTER_S
                one.faults.append(PeerFault(FILE, one.source, FaultKind.SILENT, True))
                one.report_at, one.starved_s = self.now, 0.0

    # The network.

    def _let_flow(self) -> None:
        """Let all flow for a step."""
        flowing = [one for one in self._receivers.values() if self._can_flow(one)]
        places = {one.name: place for place, one in enumerate(flowing)}
        number, uses = self._truth.number, list[list[int]]()
        for one in flowing:
            uses.append(self._truth.way(number[one.source or MASTER], number[one.name]))
        late = {
            place: places[one.source]
            for place, one in enumerate(flowing)
            if one.source in places and self._receivers[one.source].have - one.have < self._step_bytes(one)
        }
        rates = self._rates(flowing, uses, late)
        loads = dict[int, float]()
        for way, rate in zip(uses, rates, strict=True):
            for direction in way:
                loads[direction] = loads.get(direction, 0.0) + rate
        for direction, load in loads.items():
            self.carried[direction] = self.carried.get(direction, 0.0) + load * _STEP_S
        for place, one in enumerate(flowing):
            room = min(self._truth.limits[direction] - loads[direction] for direction in uses[place])
            self._advance(one, rates[place], max(0.0, room), is_late=place in late)

    def _can_flow(self, one: Receiver) -> bool:
        """True if a worker can receive something now; it changes its source if its orders name another one."""
        source = self._source_of(one) if one.done_at is None else None
        has_begun = 0 < one.have < LEAST_PIECE_BYTES or one.have >= self._limit(one)
        if source != one.source and not (one.source and has_begun):
            one.source, one.counted, one.busy_s, one.starved_s = source, one.have, 0.0, 0.0
            one.meter.begin()
        if one.source is None:
            return False
        if one.have >= self._limit(one):
            one.meter.hold_back()
            return False
        if one.source == MASTER or self._has_more(self._receivers[one.source], one):
            return True
        self._mind_starving(one)
        return False

    def _limit(self, one: Receiver) -> float:
        """Return how many bytes of the file a worker may take now."""
        return (one.order.until_bytes if one.order else None) or self._size

    def _has_more(self, source: Receiver, one: Receiver) -> bool:
        """True if a source can pass something on: of the first piece, only the whole."""
        return source.have >= min(LEAST_PIECE_BYTES, self._size) and source.have >= one.have

    def _step_bytes(self, one: Receiver) -> float:
        """Return the most bytes that a worker can receive in a step, at least a piece."""
        down = self._truth.downs[self._truth.number[one.name]]
        return max(LEAST_PIECE_BYTES, self._truth.limits[down] * _STEP_S)

    def _rates(self, flowing: Sequence[Receiver], uses: Sequence[list[int]], late: Mapping[int, int]) -> list[float]:
        terms = dict[int, list[tuple[int, int]]]()
        for place, way in enumerate(uses):
            for direction in way:
                terms.setdefault(direction, []).append((place, 1))
        rows = [Constraint(self._truth.limits[direction], tuple(found)) for direction, found in terms.items()]
        for place, one in enumerate(flowing):
            if one.order and one.order.rate_bytes_s:
                rows.append(Constraint(one.order.rate_bytes_s, ((place, 1),)))
        count = len(flowing)
        return fill(
            LinearProgramme(
                (1.0,) * count, (0.0,) * count, tuple(rows), tuple((one, other, 0.0) for one, other in late.items())
            )
        )

    def _advance(self, one: Receiver, rate: float, room: float, *, is_late: bool) -> None:
        count = min(rate * _STEP_S, self._limit(one) - one.have)
        one.have, one.starved_s = one.have + count, 0.0
        one.busy_s += count / (rate + room) if rate + room else 0.0
        one.is_late = one.is_late or is_late
        if one.order and one.order.rate_bytes_s and rate > 0.999 * one.order.rate_bytes_s:
            one.meter.hold_back()
        if one.have - one.counted >= LEAST_PIECE_BYTES:
            one.meter.count(int(one.have - one.counted), one.busy_s, is_late=one.is_late)
            one.counted, one.busy_s, one.is_late = one.have, 0.0, False
        if one.have >= self._size - 1.0:
            one.done_at = one.report_at = self.now + _STEP_S


def _facts(link: HostLink | None) -> Facts:
    return Facts("linux", "x86_64", "3.11.0", "0", "model", cpus=1, memory_bytes=8 * 10**9, slots=1, link=link)
