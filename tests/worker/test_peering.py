"""Workers that carry files on a master's orders, over real sockets, with the master's exchange between them."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loopline_master.core.events import (
    Event,
    MasterStarted,
    SchedulerSettings,
    TransfersPlanned,
    WorkerJoined,
    WorkerReported,
)
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.transfers.transfer_memory import asked
from loopline_master.metrics import Metrics
from loopline_master.peers.exchange import Exchange
from loopline_master.settings import MasterSettings
from loopline_master.transfers.solver import FILLING
from loopline_shared import grants
from loopline_shared.model import AttemptId, Load, Outcome, OutputFile, Result
from loopline_shared.pieces import LEAST_PIECE_BYTES
from loopline_shared.protocol.transfers import (
    FaultKind,
    FileSource,
    FlowMeasured,
    Grant,
    MeasureFlow,
    PeerOrders,
    PeerReport,
    PeerTerms,
)
from loopline_shared.protocol.worker_link import PROTOCOL_VERSION, Hello, Report, Welcome
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.files.cache import Cache as WorkerCache
from loopline_worker.files.downloads import Downloads
from loopline_worker.link.http_client import HttpClient
from loopline_worker.peers import master_files, peer_server
from loopline_worker.peers import peering as peering_module
from loopline_worker.peers.handshake import Opening
from loopline_worker.peers.peering import Peering
from loopline_worker.peers.upstreams import PeerUpstream, SourceError
from loopline_worker.settings import WorkerSettings
from loopline_worker.task_group import TaskGroup
from tests.api.bench import FACTS
from tests.worker.bench import until
from tests.worker.peer_bench import PIECE, MasterStub, be_patient_with_sources, content_of, list_of, name_of

CONTENT = content_of(9)
NAME = name_of(CONTENT)


class Cache:
    """A cache without downloads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sizes: dict[str, int] = {}
        self.version = 0

    def put(self, content: bytes, name: str = "") -> None:
        name = name or name_of(content)
        self.path(name).write_bytes(content)
        self.sizes[name] = len(content)
        self.version += 1

    def path(self, sha256: str) -> Path:
        return self.folder / sha256

    async def is_sound(self, sha256: str, check: Callable[[Path], bool] | None = None) -> bool:
        return sha256 in self.sizes


def report_of(peering: Peering) -> PeerReport | None:
    """Its part in the next Report of the session."""
    draft = DraftReport((), Load(1))
    peering.report(draft)
    return draft.peers


def welcome(terms: PeerTerms | None) -> Welcome:
    return Welcome(1.0, 10.0, peers=terms)


class Grid:
    """A master's scheduler and exchange, a planner that answers at once, and workers that report news."""

    def __init__(self, folder: Path, tasks: TaskGroup, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.tasks = tasks
        self.exchange = Exchange(MasterSettings(data_dir=folder, peers="on", peer_file_bytes=2**20), b"k", Metrics())
        self.master = MasterStub(CONTENT)
        self.peerings: dict[str, Peering] = {}
        self.scheduler, self.now = Scheduler(), 1000.0
        self.step(MasterStarted(SchedulerSettings(peers=True)))
        self.reports: dict[str, list[PeerReport | None]] = {}
        self.orders: dict[str, PeerOrders | None] = {}
        files = SimpleNamespace(
            size_of=lambda sha256: len(CONTENT), pieces_of=lambda sha256: list_of(CONTENT),
            open_at=lambda sha256, layout: self.master,
        )  # fmt: skip
        monkeypatch.setattr(master_files, "MasterFiles", lambda http: files)

    def join(self, name: str, **settings: Any) -> Cache:
        folder = self.folder / name
        folder.mkdir()
        made = WorkerSettings(**{"master": "http://127.0.0.1:9", "peer_port": 0, "data_dir": folder} | settings)
        peering = self.peerings[name] = Peering(name, made, HttpClient(made), self.tasks)
        cache = Cache(folder)
        peering.serve_from(cache)
        hello = Hello(PROTOCOL_VERSION, name, "boot", FACTS)
        self.reports[name] = []
        self.step(WorkerJoined(name, len(self.reports), "boot", FACTS))
        number = len(self.reports)

        def tell() -> None:
            report = report_of(peering)
            self.reports[name].append(report)
            seq = len(self.reports[name])
            peering.reported(seq)
            told = Report(seq, 0, (), (), Load(1), peers=report)
            self.exchange.heard(hello, 1, "127.0.0.1", told)
            self.step(WorkerReported(name, number, told))

        soon = partial(asyncio.get_running_loop().call_soon, tell)
        peering.attach(SimpleNamespace(speak=soon, is_wanted=False))  # type: ignore[arg-type]
        peering.connected(welcome(self.exchange.terms(hello)))
        tell()
        return cache

    def step(self, *events: Event) -> None:
        """Step, deliver, and make a plan if one is requested."""
        self.now += 1e-3
        effects = self.scheduler.step(events, self.now)
        for name, assign in effects.assigns.items():
            filled = self.exchange.with_orders(name, assign)
            self.orders[name] = filled.peers
            self.peerings[name].assign(filled)
        if request := asked(effects):
            plan = FILLING.plan(request.request())
            self.step(TransfersPlanned(request.number, request.answer(plan), plan.objective))

    async def fetch(self, name: str, size_bytes: int | None = len(CONTENT)) -> bool:
        return await self.peerings[name].fetch(NAME, self.folder / name / "part", size_bytes)

    def part(self, name: str) -> bytes:
        return (self.folder / name / "part").read_bytes()

    async def has_opened(self, name: str) -> None:
        await until(lambda: self.reports[name][-1] and self.reports[name][-1].port)  # type: ignore[union-attr]


@pytest.fixture
async def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Grid]:
    """Run a grid on a computer that may be busy."""
    monkeypatch.setattr(peering_module, "_ANSWER_WITHIN_S", 60.0)
    be_patient_with_sources(monkeypatch)
    async with _running(lambda tasks: Grid(tmp_path, tasks, monkeypatch)) as made:
        yield made


@asynccontextmanager
async def _running(make: Callable[[TaskGroup], Grid]) -> AsyncIterator[Grid]:
    async with TaskGroup() as tasks:
        made = make(tasks)
        try:
            yield made
        finally:
            for peering in made.peerings.values():
                peering.close()


async def test_file_is_fetched_from_the_worker_named_in_the_assign(grid: Grid) -> None:
    grid.join("ant").put(CONTENT)
    grid.join("bee")
    await grid.has_opened("ant")
    assert await grid.fetch("bee")
    assert grid.part("bee") == CONTENT
    assert grid.master.asked == []
    assert "1 MB" not in grid.peerings["bee"].notice()
    assert grid.peerings["bee"].notice().startswith("Port ")
    assert f"{len(CONTENT) / 1e6:,.0f} MB received" in grid.peerings["bee"].notice()


async def test_concurrent_fetches_form_a_pipeline(grid: Grid) -> None:
    for name in ("ant", "bee", "cat", "dog"):
        grid.join(name)
        await grid.has_opened(name)
    assert all(await asyncio.gather(*(grid.fetch(name) for name in grid.peerings)))
    assert all(grid.part(name) == CONTENT for name in grid.peerings)


async def test_worker_without_a_port_dials_the_receiver(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver starts with the master, and switches to the other worker once that has dialled in."""
    opens = peer_server.PeerServer.open

    def open_(server: Any, address: str, port: int) -> None:
        if server._host is grid.peerings["ant"]:
            raise OSError("the system forbids it")
        opens(server, address, port)

    monkeypatch.setattr(peer_server.PeerServer, "open", open_)
    dialled = threading.Event()

    class Master(MasterStub):
        def receive(self, buffer: memoryview) -> bool:
            assert self._next < 2 or dialled.wait(60)
            return super().receive(buffer)

    grid.master = Master(CONTENT)
    grid.join("ant").put(CONTENT)
    grid.join("bee")
    await grid.has_opened("bee")
    grid.peerings["ant"].agent.speak()
    fetching = asyncio.create_task(grid.fetch("bee"))
    await until(lambda: (orders := grid.orders["bee"]) and orders.fetch)
    assert [source.dials_in for source in grid.orders["bee"].fetch[0].sources] == [True]  # type: ignore[union-attr]
    grid.peerings["ant"].agent.speak()
    await until(lambda: grid.orders["ant"])
    expected = grid.orders["ant"].dial[0].grant  # type: ignore[union-attr]
    for other in (replace(expected, source="eve"), replace(expected, expires_at=expected.expires_at + 1)):
        assert grid.peerings["bee"].secret_of(Opening("serve", other, "0" * 32)) is None
    assert grid.peerings["bee"].secret_of(Opening("serve", expected, "0" * 32)) is not None
    entries = grid.peerings["bee"]._book._entries
    await until(lambda: NAME not in entries or entries[NAME].fetch._dialled)  # or it has it all
    dialled.set()
    assert await fetching
    assert grid.part("bee") == CONTENT
    asked = grid.master.asked
    assert asked == list(range(len(asked)))
    assert len(asked) <= 4  # including pieces in flight


async def test_fault_is_reported_until_the_master_acknowledges_it(grid: Grid) -> None:
    grid.join("liar").put(CONTENT[::-1], NAME)
    grid.join("bee")
    await grid.has_opened("liar")
    assert await grid.fetch("bee")
    assert grid.part("bee") == CONTENT
    await until(lambda: any(report and report.faults for report in grid.reports["bee"]))
    told = [report.faults for report in grid.reports["bee"] if report and report.faults]
    assert [(fault.source, fault.kind) for fault in told[0]] == [("liar", FaultKind.WRONG_CONTENT)]
    grid.peerings["bee"].agent.speak()
    await until(lambda: grid.reports["bee"][-1] and not grid.reports["bee"][-1].faults)
    assert len(told) == 1
    grid.join("cat")
    assert await grid.fetch("cat")
    assert grid.part("cat") == CONTENT
    assert not any(report and report.faults for report in grid.reports["cat"])


async def test_cache_is_reported_on_change_and_in_each_new_session(grid: Grid) -> None:
    cache = grid.join("ant")
    cache.put(CONTENT)
    cache.put(b"small")
    grid.peerings["ant"].agent.speak()
    await until(lambda: len(grid.reports["ant"]) >= 2)
    grid.peerings["ant"].agent.speak()
    await until(lambda: grid.reports["ant"][-1] and grid.reports["ant"][-1].cached is None)
    told = [report.cached for report in grid.reports["ant"] if report and report.cached]
    assert [[file.sha256 for file in files] for files in told] == [[NAME]]
    grid.peerings["ant"].connected(welcome(grid.peerings["ant"]._terms))
    report = report_of(grid.peerings["ant"])
    assert report
    assert report.cached == told[0]


async def test_large_outputs_are_cached_for_later_jobs_within_the_limit(grid: Grid, tmp_path: Path) -> None:
    grid.join("ant")
    peering, spool = grid.peerings["ant"], tmp_path / "spool"
    cache = WorkerCache(tmp_path / "cache", 2 * len(CONTENT) - 1, Downloads(peering._http, peering))
    peering.serve_from(cache)
    spool.mkdir()
    contents = [CONTENT, CONTENT[::-1], b"small"]
    for content in contents:
        (spool / name_of(content)).write_bytes(content)
    files = [OutputFile(f"out/{n}", name_of(content), len(content)) for n, content in enumerate(contents)]
    made = Result(AttemptId(1, 1, 1), Outcome.SUCCEEDED, 0, outputs=tuple(files[::2]))
    peering.after_delivery(made, spool)
    peering.after_delivery(made, spool)
    assert dict(cache.sizes) == {NAME: len(CONTENT)}
    shutil.rmtree(spool)  # the master acknowledged the result
    async with cache.hold(NAME) as path:
        assert path.read_bytes() == CONTENT
    spool.mkdir()
    (spool / files[1].sha256).write_bytes(contents[1])
    peering.after_delivery(replace(made, outputs=(files[1],)), spool)
    assert [*cache.sizes] == [files[1].sha256], "the least recently used went"
    peering.after_delivery(replace(made, outputs=(OutputFile("gone", "0" * 64, 2**30),)), spool)
    assert [*cache.sizes] == [files[1].sha256]


async def test_small_files_and_refused_transfers_use_the_master(grid: Grid) -> None:
    grid.join("ant")
    grid.join("bee", peer_files=False)
    assert not await grid.fetch("ant", 2**20 - 1)
    assert not await grid.fetch("bee")
    assert grid.reports["bee"] == [None]
    assert grid.peerings["bee"].notice() == ""


async def test_peer_port_follows_the_operators_setting(grid: Grid) -> None:
    grid.join("ant")
    await grid.has_opened("ant")
    peering = grid.peerings["ant"]
    terms, port = peering._terms, report_of(peering).port  # type: ignore[union-attr]
    peering.connected(welcome(None))
    assert not peering.is_awake
    assert report_of(peering) is None
    await until(lambda: not is_open(port))
    assert peering.notice() == ""
    peering.connected(welcome(terms))
    await until(lambda: report_of(peering).port)  # type: ignore[union-attr]
    assert is_open(report_of(peering).port)  # type: ignore[union-attr]


def is_open(port: int | None) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port or 1)) == 0


async def test_probe_measures_a_transfer_and_ends_when_a_task_arrives(grid: Grid) -> None:
    for name in ("ant", "bee"):
        grid.join(name)
        await grid.has_opened(name)
    assert grid.exchange.reachable() == ["ant", "bee"] or grid.exchange.reachable() == ["bee", "ant"]
    source = grid.exchange.probe_source("ant", "bee")
    assert source
    assert grid.exchange.probe_source("ant", "cat") is None
    bee, began = grid.peerings["bee"], time.monotonic()
    probed = await bee.probe(MeasureFlow(7, source, 0.1))
    assert probed.number == 7
    assert probed.rate_bytes_s
    assert probed.rate_bytes_s >= LEAST_PIECE_BYTES / (time.monotonic() - began), "at least a piece in that time"

    async def begun(number: int) -> asyncio.Task[FlowMeasured]:
        await until(lambda: "0 are served" in grid.peerings["ant"].notice())
        probing = asyncio.create_task(bee.probe(MeasureFlow(number, source, 60.0)))
        await until(lambda: "1 are served" in grid.peerings["ant"].notice())
        return probing

    lasting = await begun(8)
    assert (await bee.probe(MeasureFlow(9))).reason == "the probe was called off"
    assert (await lasting).rate_bytes_s is None
    lasting = await begun(10)
    grid.peerings["ant"].agent.is_wanted = True  # the one that serves has a task now
    assert (await lasting).rate_bytes_s is None
    assert (await bee.probe(MeasureFlow(11, source, 0.1))).reason
    assert not [path for path in (grid.folder / "bee").iterdir() if path.name.startswith("probe-")]


async def test_fetch_ends_when_its_waiter_is_cancelled(grid: Grid) -> None:
    grid.join("ant")
    await grid.has_opened("ant")
    grid.master.content = b""

    class Waiting(MasterStub):
        def receive(self, buffer: memoryview) -> bool:
            time.sleep(0.01)
            return False

    grid.master = Waiting(CONTENT)
    fetching = asyncio.create_task(grid.fetch("ant"))
    await until(lambda: grid.peerings["ant"]._book.is_fetching)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert not grid.peerings["ant"]._book.is_fetching


@pytest.mark.parametrize("fault", ["", "expired", "for another worker's files", "of another run of the agent"])
async def test_file_is_served_only_for_a_valid_grant(grid: Grid, fault: str) -> None:
    grid.join("ant").put(CONTENT)
    await grid.has_opened("ant")
    terms = grid.peerings["ant"]._terms
    assert terms
    key = bytes.fromhex(terms.key)
    if fault == "of another run of the agent":
        key = grants.worker_key(b"k", "ant", "an earlier boot")
    source = "bee" if fault == "for another worker's files" else "ant"
    grant = Grant(NAME, source, "bee", terms.now + (-1.0 if fault == "expired" else 60.0))
    secret = grants.secret_of(key, grant).hex()
    port = grid.peerings["ant"]._server.port  # type: ignore[union-attr]
    named = FileSource(source, "127.0.0.1", port or 1, grant.expires_at, secret)
    connecting = asyncio.to_thread(PeerUpstream.connect, named, NAME, "bee", 0)
    if fault:
        with pytest.raises(SourceError) as error:
            await connecting
        assert error.value.kind is FaultKind.REFUSED
    else:
        upstream = await connecting
        upstream.ask_up_to(1)
        buffer = memoryview(bytearray(PIECE))
        await asyncio.to_thread(_until_received, upstream, buffer)
        assert buffer == CONTENT[:PIECE]
        upstream.close()


async def test_grants_expire_by_the_clock_of_the_master(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose clock is an hour slow uses the master's time."""
    now, terms = time.time() + 3600.0, grid.exchange.terms
    monkeypatch.setattr(grid.exchange, "terms", lambda hello: replace(terms(hello), now=now))  # type: ignore[type-var]
    grid.join("ant").put(CONTENT)
    late, early = (Grant(NAME, "ant", "bee", now + seconds) for seconds in (60.0, -60.0))
    openings = [Opening("receive", grant, "0" * 32) for grant in (late, early)]
    secrets = [grid.peerings["ant"].secret_of(opening) for opening in openings]
    assert [secret is not None for secret in secrets] == [True, False]


def _until_received(upstream: PeerUpstream, buffer: memoryview) -> None:
    while not upstream.receive(buffer):
        pass
