"""The agent: the core's instructions carried out, and what happens here told to the master."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import psutil

from loopline_shared.model import AttemptId, Facts, Outcome, Probation, Result
from loopline_shared.protocol.messages import MAX_WROTE_BYTES, Assign, Read, Run, Wrote
from loopline_shared.protocol.session import WorkerSession
from loopline_worker.attempts.limits import quota_of
from loopline_worker.attempts.runner import Runner
from loopline_worker.core.core import Core
from loopline_worker.files.cache import Cache
from loopline_worker.files.downloads import Downloads
from loopline_worker.files.task_files import Shelf
from loopline_worker.files.uploads import Uploads
from loopline_worker.functions.launcher import WarmLauncher
from loopline_worker.functions.python import Python
from loopline_worker.functions.python import find as find_python
from loopline_worker.host import speed
from loopline_worker.host.computer import Computer, facts, processor
from loopline_worker.host.load import SAMPLE_EVERY_S, Meter, Recent
from loopline_worker.launch.platforms import make_launcher
from loopline_worker.link.connection import Link
from loopline_worker.link.http_client import Gate
from loopline_worker.link.link_quality import Network
from loopline_worker.owner.advertised_slots import Offer
from loopline_worker.owner.owner_monitor import Yielding
from loopline_worker.owner.pause import Pause
from loopline_worker.settings import WorkerSettings
from loopline_worker.state import legacy
from loopline_worker.state.attempt_log import Diary
from loopline_worker.state.data_directory import Home
from loopline_worker.state.journal import Ledger
from loopline_worker.state.result_delivery import Outbox
from loopline_worker.state.spool import Spool
from loopline_worker.task_group import Crew

if TYPE_CHECKING:
    from loopline_worker.launch.sandbox import Sandbox
    from loopline_worker.owner.server import OwnerServer

log = logging.getLogger(__name__)

_STOP_WITHIN_S = 5.0
_FAREWELL_WITHIN_S = 2.0
_FIRST_SAMPLE_S = 0.1
_READ_WITHIN_S = 15.0
_AGAIN = "its worker's agent had to be started again"


async def run(settings: WorkerSettings, home: Home, on_start: Callable[[Agent], None]) -> None:
    """Serve the master until the agent is stopped; LooplineError where its first connection is refused."""
    async with Gate(settings) as gate, Crew() as crew:
        agent = Agent(settings, home, gate, crew)
        on_start(agent)
        await agent.serve()


class Agent:
    """One worker. Tasks keep running while the master is away; their results wait in the ledger."""

    def __init__(self, settings: WorkerSettings, home: Home, gate: Gate, crew: Crew) -> None:
        computer = Computer.here()
        self.name = settings.name or home.worker_name()
        self._boot = secrets.token_hex(8)
        python = find_python(settings.python)
        self._facts = _facts(settings, home, computer, python)
        self._crew = crew
        self._meter = Meter(computer)
        self._spool = Spool(home.spool, settings.spool_limit_bytes)
        self._ledger = Ledger(home.ledger)
        legacy.take_over(self._ledger, home.inbox, home.spool)
        self._network = Network()
        self._offer = Offer(
            self._facts.slots, settings.disk_reserve_bytes, home, self._are_too_many_results, self._review
        )
        uploads = Uploads(gate, self._network.moved)
        self._cache = Cache(home.cache, settings.cache_limit_bytes, Downloads(gate))
        self._outbox = Outbox(self._ledger, self._spool, uploads, crew, self._ready, self._offer.withdraw)
        launcher = make_launcher(not settings.dedicated, _sandbox(settings, python))
        self._launcher = WarmLauncher(launcher, self._cache, (python.program,))
        self._runner = Runner(
            crew,
            self._launcher,
            self._spool,
            home.scratch,
            self.name,
            settings.output_limit_bytes,
            self._ended,
            quota_of(settings, self._facts),
            Shelf(self._cache, self._spool, settings.scratch_limit_bytes, settings.outputs_limit_bytes),
            self._followed,
            self._returned,
        )
        self._home = home
        self._disk_free_bytes = Recent(home.free_bytes)
        self._yielding = Yielding(
            settings, computer, self._meter, self._runner, self._offer, Pause(home.pause), self._review
        )
        self._link = Link(gate, self)
        self._diary = Diary()
        self._ended_now: list[Result] = []
        self._settings = settings
        self._page: OwnerServer | None = None
        self._probation: Probation | None = None  # of the last Assign
        self._is_ready = asyncio.Event()
        self._stopped = asyncio.Event()
        self._heard = asyncio.Event()
        self._core = self._restore()

    def stop(self) -> None:
        """Give back all that runs, say so to the master, and end ``serve``."""
        self._stopped.set()

    async def serve(self) -> None:
        try:
            self._crew.start(self._link.keep())
            self._sample()
            if not self._settings.dedicated:
                await asyncio.sleep(_FIRST_SAMPLE_S)
            self._yielding.start(self._crew)
            self._is_ready.set()
            await self._open_page()
            self._crew.start(self._watch())
            await self._stopped.wait()
            await self._leave()
        finally:
            if self._page:
                await self._page.close()
            self._ledger.close()
            self._yielding.close()
            self._launcher.close()

    def _restore(self) -> Core:
        """What an earlier agent left: results, and what was sent to it. What it had begun is given back."""
        results, unready = self._outbox.restore()
        waiting, begun = self._ledger.waiting, self._ledger.begun
        died = self._ledger.left_at > psutil.boot_time()  # else the computer may have been switched off
        given_back = [Result(attempt, Outcome.GIVEN_BACK, reason=_AGAIN, agent_died=died) for attempt in begun]
        if waiting or given_back:
            log.info("an earlier agent left %d attempts that wait; %d are given back", len(waiting), len(given_back))
        held = [result.attempt for result in unready]
        return Core([*results, *given_back], held, waiting, self._facts.slots)

    # What the link asks of its speaker.

    async def ready(self) -> None:
        """Until it is known what the owner leaves over."""
        await self._is_ready.wait()

    @property
    def has_news(self) -> bool:
        return self._core.has_news

    @property
    def is_busy(self) -> bool:
        return self._core.is_busy

    def new_session(self) -> WorkerSession:
        self._runner.recall()
        self._core.connected()
        self._network.connected()
        return WorkerSession(self.name, self._boot, self._facts)

    def assigned(self, assign: Assign, frame: bytes) -> None:
        self._network.answered(assign.seen, assign.held_s, time.monotonic())
        if assign.cancel:  # what has not begun need not be ended
            self._runner.recall()
        todo = self._core.assigned(assign)
        runs, lined_up = todo.start or self._evened(), self._line_up()
        began = [run.attempt for run in (*runs, *lined_up)]
        try:
            self._ledger.write(over=todo.forget, came=(assign, frame), began=began)
        except OSError as error:
            self._offer.withdraw(f"cannot write down what the master sends: {error}")  # what waits is given back
        self._start(runs, lined_up)
        for attempt in todo.cancel:
            self._runner.cancel(attempt)
        self._spool.forget(todo.forget)
        if self._core.is_busy:
            self._review_queue()
        if self._core.has_results:
            self._link.speak()
        elif self._core.has_news:
            self._link.speak_soon()
        self._probation = assign.probation
        self._heard.set()

    def report(self, session: WorkerSession) -> bytes:
        holding, results = self._core.to_report()
        held = [self._runner.held(attempt) for attempt in holding]
        load = self._yielding.load(self._disk_free_bytes(), self._network)
        texts = [self._ledger.text(result) for result in results]
        seq, frame = session.report_of(held, texts, load, self._core.waiting)
        self._network.sent(seq, time.monotonic())
        self._core.reported(seq, results)
        if self._core.has_results:  # more than one Report may bring
            self._link.speak()
        return frame

    async def wrote(self, read: Read) -> Wrote:
        """What an attempt wrote; after a while without any, that there is none yet."""
        try:
            async with asyncio.timeout(_READ_WITHIN_S):
                data = await self._runner.read(read.attempt, read.stream, read.offset, MAX_WROTE_BYTES)
        except TimeoutError:
            return Wrote(read.number, b"", is_over=False)
        return Wrote(read.number, data, is_over=not data)

    # What waits for a slot.

    def _evened(self) -> tuple[Run, ...]:
        """What begins once nothing is lined up elsewhere while slots are free."""
        if not self._core.is_uneven:
            return ()
        self._runner.recall()
        return self._core.recalled()

    def _line_up(self) -> tuple[Run, ...]:
        return self._core.line_up(self._runner.room()) if self._core.may_line_up else ()

    def _begin(self, runs: tuple[Run, ...]) -> None:
        runs = runs or self._evened()
        if runs:
            with suppress(OSError):  # the next agent would have it wait
                self._ledger.write(began=[run.attempt for run in runs])
            self._start(runs)

    def _start(self, runs: Iterable[Run], lined_up: Iterable[Run] = ()) -> None:
        """What the ledger says to have begun: now, or as soon as another has ended."""
        for run in runs:
            refusal = self._yielding.refusal(run.slots)
            self._runner.start(run, refusal)
            if not refusal:
                self._yielding.took(run.attempt, run.slots)
            self._diary.began(run, refusal)
        for run in lined_up:
            self._runner.line_up(run)

    def _followed(self, before: AttemptId, after: AttemptId) -> None:
        run = self._core.followed(before, after)
        self._yielding.followed(before, after, run.slots)
        self._diary.began(run, "")

    def _returned(self, attempts: Sequence[AttemptId]) -> None:
        self._core.returned(attempts)
        self._crew.soon(self._take_results)

    def _review(self) -> None:
        """The owner leaves more or less, or something is in the way: the master hears of it at once."""
        self._review_queue()
        self._link.speak()

    def _review_queue(self) -> None:
        """Nothing begins beside what stands still, and nothing waits for it."""
        allowed, hindrance = self._yielding.consent.slots, self._offer.obstacle or self._yielding.hindrance
        if hindrance:
            self._runner.recall()
        self._begin(self._core.allow(0 if hindrance else allowed))
        dropped = self._core.give_back(
            hindrance or self._yielding.consent.why, wider_than=0 if hindrance else allowed
        )
        if dropped:
            log.info("%d attempts that waited are given back: %s", len(dropped), hindrance)

    def _are_too_many_results(self) -> bool:
        return self._spool.is_full(self._ledger.live_bytes)

    # What happens here.

    def _ended(self, result: Result, trouble: str) -> None:
        """Results that come together are written together."""
        if trouble:
            self._offer.withdraw(trouble)
        if not self._ended_now:
            self._crew.soon(self._take_results)
        self._ended_now.append(result)

    def _take_results(self) -> None:
        results, self._ended_now = self._ended_now, []
        for result in results:
            self._yielding.ended(result.attempt)
        runs = self._core.left(*[result.attempt for result in results]) or self._evened()
        lined_up = self._line_up()
        ready = self._outbox.take(results, [run.attempt for run in (*runs, *lined_up)])
        self._start(runs, lined_up)
        for result in ready:
            self._begin(self._core.ended(result))
        if ready:
            self._link.speak_now()
        for result in results:
            self._diary.ended(result)
        if self._offer.obstacle:  # the disk took nothing of it
            self._review_queue()

    def _ready(self, result: Result) -> None:
        """What had to wait."""
        self._begin(self._core.ended(result))
        self._link.speak()

    async def _watch(self) -> NoReturn:
        while True:
            self._sample()
            self._yielding.sample()
            self._cache.make_room(self._settings.disk_reserve_bytes - self._home.free_bytes())  # before tasks do
            self._offer.review()
            self._launcher.interpreters.keep(self._yielding.consent.slots - self._runner.slots_in_use)
            self._diary.sum_up()
            self._ledger.rest()
            if self._link.has_been_silent:
                self._runner.recall()
                self._core.doubt()
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _sample(self) -> None:
        self._meter.sample(self._runner.measure() + self._launcher.cpu_s() + time.process_time())

    async def _open_page(self) -> None:
        """For the owner of this computer, unless there is to be none."""
        if self._settings.owner_page:
            from loopline_worker.owner.server import OwnerServer
            from loopline_worker.owner.state import Watcher

            watcher = Watcher(
                self.name, self._settings, self._facts.slots, self._yielding, self._runner, lambda: self._probation
            )
            self._page = OwnerServer(self._home.folder, watcher, self._settings.owner_port)
            await self._page.open()

    # The end.

    async def _leave(self) -> None:
        log.info("stopping: whatever runs is given back")
        self._offer.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._runner.close("the worker was stopped"), _STOP_WITHIN_S)
        self._take_results()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._say_farewell(), _FAREWELL_WITHIN_S)

    async def _say_farewell(self) -> None:
        """Until the master has everything, if it is there."""
        self._link.speak()
        while self._link.is_open and not self._core.is_idle:
            self._heard.clear()
            await self._heard.wait()
        self._ledger.rest()


def _facts(settings: WorkerSettings, home: Home, computer: Computer, python: Python) -> Facts:
    found = speed.known(home.speed, processor(), computer.cpus)
    own = facts(
        computer,
        settings.slots,
        settings.labels,
        found.value,
        network=_has_network(settings),
        functions=python.functions,
    )
    return replace(own, speed_source=found.source, speed_measured_at=found.measured_at)


def _has_network(settings: WorkerSettings) -> bool:
    return settings.sandbox_network or not settings.sandbox


def _sandbox(settings: WorkerSettings, python: Python) -> Sandbox | None:
    """LooplineError where one is asked for that this computer cannot have."""
    if not settings.sandbox:
        return None
    from loopline_worker.launch.sandbox import open_sandbox

    shows = [*settings.sandbox_shows, *python.folders]
    return open_sandbox(settings.sandbox_network, shows, hides=settings.secrets())
