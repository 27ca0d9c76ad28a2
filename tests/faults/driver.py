"""A campaign: a real grid under load, faults injected by a seed, and an audit when all jobs have ended.

The seed determines jobs, faults and victims. Their timing depends on the computer, so a seed that found an error
reproduces it often, but not always.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from loopline.client import AsyncClient
from loopline_shared.errors import LooplineError
from loopline_shared.model import TaskId
from tests.faults import jobs
from tests.faults.audit import audit
from tests.faults.bugs import VARIABLE
from tests.faults.jobs import Drawn
from tests.live.grid import Grid, Process, wait_for
from tests.live.proxy import Proxy

WORKERS = ("ant", "bee", "cat")
LIMIT_S = 240.0
"""Seconds after the last fault within which all jobs must end."""
PATIENCE_S = 90.0
TURNS = 4
"""Tries to inject a fault per fault wanted: some faults are not possible at a given moment."""
MASTER = (
    *("--lease-s", "2"),  # leases end within the run, so that attempts are lost and adopted
    *("--report-every-s", "0.5", "--stall-after-s", "3600", "--overdrawn-after", "0"),
)
"""No job is exempt from the order, so every passing is an error."""


class StrangeGrid(Grid):
    """A grid in which some daemons have planted bugs."""

    def __init__(self, folder: Path, bug: str, strange: dict[str, str]) -> None:
        """``bug``: planted in all daemons; ``strange``: bugs of single daemons, by name."""
        super().__init__(folder)
        self._bug, self._strange = bug, strange

    async def _spawn(self, log: str, module: str, *arguments: str, more: dict[str, str] | None = None) -> Process:
        bugs = ",".join(filter(None, (self._bug, self._strange.get(log))))
        if bugs:
            module = module.replace("loopline", "tests.faults.planted")
        return await super()._spawn(log, module, *arguments, more=(more or {}) | {VARIABLE: bugs})


@dataclass(frozen=True)
class Fault:
    """An action and its target: "master", one of the workers, or a part of a feature."""

    name: str
    act: Callable[[Campaign, str], Awaitable[bool | None]]  # False: not possible at the moment
    to: str = "worker"


@dataclass(frozen=True)
class Feature:
    """A feature of Loopline in a campaign: how to enable it, its faults, and the bugs that must be caught."""

    name: str
    faults: tuple[Fault, ...]
    bugs: dict[str, str]  # a name in tests/faults/bugs.py, and a part of the finding that must report it
    master: tuple[str, ...] = ()  # options
    worker: dict[str, str] = field(default_factory=dict)  # variables of the environment
    looks: Callable[[Campaign], Iterable[str]] | None = None  # additional checks of the auditor
    jobs: tuple[Callable[[Campaign, str], Awaitable[Drawn]], ...] = ()  # additional kinds of jobs
    strange: dict[str, str] = field(default_factory=dict)  # a bug or a stand-in that others must tolerate, by daemon
    around: Callable[[Campaign], AbstractAsyncContextManager[None]] | None = None  # prepares its servers and files


@dataclass(frozen=True)
class Report:
    """The faults injected and the findings."""

    seed: int
    faults: Counter[str]
    tasks: int
    findings: list[str]

    def __str__(self) -> str:
        done = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.faults.total()} faults ({done}); {self.tasks} tasks; {self.findings or 'sound'}"
        )


class Campaign:
    """One run; it gives faults and jobs of features access to the grid, its cables and the random numbers."""

    def __init__(self, folder: Path, features: Sequence[Feature], seed: int, *, faults: int, bug: str = "") -> None:
        self.folder, self.features, self.seed, self._wanted = folder, features, seed, faults
        self.grid, self._is_broken = StrangeGrid(folder, bug, _strange(features)), bool(bug)
        self.chance = Random(f"{seed} faults")
        self.drawing = Random(f"{seed} jobs")
        self.cables: dict[str, list[Proxy]] = {}
        self.ports = [self.grid.port]  # of the masters
        self.begin: Callable[[], Awaitable[AsyncClient]] = self._begin_one
        self.jobs: list[Drawn] = []
        self.seen: dict[TaskId, tuple[int, ...]] = {}
        self.targets = {"master": ["master"], "worker": list(WORKERS)}
        self.master_options = [*MASTER, "--policy", self.chance.choice(("round-robin", "fair"))]
        self.variables_of: dict[str, dict[str, str]] = {}  # of single workers
        self.database = str(self.grid.data_dir / "loopline.db")
        self._urls: dict[str, str] = {}
        self._ended = set[int]()
        self.busy = set[str]()  # targets of the faults under way
        self._counts, self._findings = Counter[str](), list[str]()
        self._blamed = set[TaskId]()
        self._begun = time.monotonic()

    # --- for features ------------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self._begun:6.1f} s  {what}", flush=True)

    def found(self, finding: str) -> None:
        self.say(f"FOUND {finding[:1000]}")
        self._findings.append(finding)

    async def start_master(self) -> None:
        await self.grid.start_master(*self.master_options)

    async def start_worker(self, name: str) -> None:
        """Start or restart a worker behind its cable; its name is its label."""
        settings = {key: value for feature in self.features for key, value in feature.worker.items()}
        url = await self.cable(name)
        settings |= {"LOOPLINE_RETRY_MAX_S": "1", "LOOPLINE_LABELS": name} | self.variables_of.get(name, {})
        await self.grid.start_worker(name, slots=2, url=url, settings=settings)

    async def cable(self, name: str) -> str:
        """Return a worker's addresses of its masters, which lead through its own cables."""
        if name not in self.cables:
            self.cables[name] = [Proxy(port) for port in self.ports]
            self._urls[name] = ",".join([await cable.start() for cable in self.cables[name]])
        return self._urls[name]

    async def may_kill_agent(self, worker: str) -> bool:
        """Return True once per task: trust.py blames a task whose agents die repeatedly."""
        client = self.client
        running = {
            one.id.task_id
            for job in self._going_on
            async for one in client.attempts(job.id)
            if one.worker == worker and one.ended_at is None
        }
        if running & self._blamed:
            return False
        self._blamed |= running
        return True

    # --- the run ----------------------------------------------------------------------------------------------

    async def run(self) -> Report:
        """Run the campaign of the seed, and return the findings."""
        self.say(f"campaign of {', '.join(one.name for one in self.features)}; SEED={self.seed}")
        try:
            async with self._grid():
                await self._disturb()
                more = [one for feature in self.features if feature.looks for one in feature.looks(self)]
                for finding in [*await audit(self), *more]:
                    self.found(finding)
        except (AssertionError, LooplineError, TimeoutError) as error:
            self.found(f"the campaign could not go on: {str(error)[-3000:] or type(error).__name__}")
        report = Report(self.seed, self._counts, sum(job.tasks for job in self.jobs), self._findings)
        self.say(str(report))
        return report

    @asynccontextmanager
    async def _grid(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop)
            for feature in self.features:
                self.master_options += feature.master
                if feature.around:
                    await stack.enter_async_context(feature.around(self))
            self.client: AsyncClient = await self.begin()
            for name in WORKERS:
                await self.start_worker(name)
            await wait_for("all workers to connect", self._are_connected)
            yield

    async def _begin_one(self) -> AsyncClient:
        await self.start_master()
        return self.grid.client(PATIENCE_S)

    async def _are_connected(self) -> bool:
        return {one.name async for one in self.client.workers() if one.connected} >= set(WORKERS)

    async def _stop(self) -> None:
        for process in [*self.grid.workers.values(), self.grid.master]:
            if process is not None and process.returncode is None and self._is_broken:
                process.kill()  # a daemon with a bug may not end otherwise
        await self.grid.stop()
        for cable in [cable for cables in self.cables.values() for cable in cables]:
            await cable.stop()

    async def _disturb(self) -> None:
        """Submit jobs and inject faults in turns, at most two at once; then let all jobs end undisturbed."""
        self._looking = looking = asyncio.create_task(self._keep_looking())
        under_way = set[asyncio.Task[None]]()
        try:
            for turn in range(TURNS * self._wanted):
                if self._counts.total() >= self._wanted:
                    break
                if self._unfinished < 4:
                    await self._submit_some(turn)
                under_way.add(asyncio.create_task(self._one_fault()))
                if len(under_way) > 1:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for each in done:
                        each.result()
                await self._progress()
                self._nobody_ended_by_itself()
            await asyncio.gather(*under_way)
            under_way.clear()
            await self.submit(jobs.race(self.drawing, "job-race"))
            await self._end_all()
            self._nobody_ended_by_itself()
        finally:
            for each in (looking, *under_way):
                each.cancel()
            await asyncio.gather(looking, *under_way, return_exceptions=True)

    async def _submit_some(self, turn: int) -> None:
        kinds = [_plain, *(kind for feature in self.features for kind in feature.jobs)]
        for number in range(self.drawing.randint(1, 3)):
            await self.submit(await self.drawing.choice(kinds)(self, f"job-{turn}-{number}"))

    async def submit(self, drawn: Drawn) -> None:
        drawn.sent_at = time.time()
        self.jobs.append(drawn)
        drawn.id = (await self.client.submit(drawn.spec)).id
        drawn.acknowledged_at = time.time()
        self.say(f"job {drawn.id}, {drawn.spec.name}, of {drawn.tasks} tasks, size {drawn.size:g}")

    async def _one_fault(self) -> None:
        free = {
            fault: [target for target in self.targets[fault.to] if target not in self.busy]
            for fault in self.chance.choice([one for one in self.features if one.faults]).faults
        }
        fault = self.chance.choice([fault for fault, targets in free.items() if targets] or [None])
        if fault is None:
            return
        target = self.chance.choice(free[fault])
        self.busy.add(target)
        try:
            self.say(f"{fault.name} {target}")
            if await fault.act(self, target) is not False:
                self._counts[fault.name] += 1
        finally:
            self.busy.discard(target)

    async def _progress(self) -> None:
        """Let the grid work until some more tasks or all jobs have ended, or for 5 s."""
        wanted = len(self.seen) + self.chance.randint(1, 8)

        async def is_made() -> bool:
            return len(self.seen) >= wanted or not self._unfinished

        try:
            await wait_for("some progress", is_made, 5)
        except AssertionError:
            return

    async def _end_all(self) -> None:
        try:
            await wait_for("all jobs to end", self._all_ended, LIMIT_S)
        except AssertionError:
            for job in self._going_on:
                async with asyncio.timeout(PATIENCE_S):
                    said = await self.client.explain(job.id)
                self.found(f"job {job.id} does not end: {said.sentence}")
            raise

    # --- observations ------------------------------------------------------------------------------------------

    @property
    def _going_on(self) -> list[Drawn]:
        """Return acknowledged jobs not yet shown as ended; a fault may be submitting another one."""
        return [job for job in self.jobs if job.id and job.id not in self._ended]

    @property
    def _unfinished(self) -> int:
        return sum(job.id not in self._ended for job in self.jobs)

    async def _all_ended(self) -> bool:
        if self._looking.done():
            self._looking.result()
        return not self._unfinished

    async def _keep_looking(self) -> None:
        """Record the tasks shown as ended: a result shown once must never change."""
        while True:
            for job in self._going_on:
                try:
                    await self._look_at(job)
                except LooplineError as error:
                    if error.status != 404:
                        raise
                    self.found(f"job {job.id} was acknowledged, and is gone")
                    self._ended.add(job.id)
            await asyncio.sleep(0.1)  # polls

    async def _look_at(self, job: Drawn) -> None:
        view = await self.client.job(job.id)
        found: dict[TaskId, tuple[int, ...]] = {}
        async for one in self.client.attempts(job.id):
            if one.accepted:
                found[one.id.task_id] = (*found.get(one.id.task_id, ()), one.id.number)
        for task, numbers in found.items():
            self.seen.setdefault(task, numbers)
        if view.finished_at is not None:
            self._ended.add(job.id)

    def _nobody_ended_by_itself(self) -> None:
        daemons = {"master": self.grid.master, **self.grid.workers}
        for name, process in daemons.items():
            if name not in self.busy and process is not None:
                assert process.returncode is None, f"{name} ended by itself:\n{self.grid.log(name)[-2000:]}"


def _strange(features: Iterable[Feature]) -> dict[str, str]:
    """Return the bugs of single daemons, separated by commas."""
    found = dict[str, list[str]]()
    for name, bug in (each for feature in features for each in feature.strange.items()):
        found.setdefault(name, []).append(bug)
    return {name: ",".join(bugs) for name, bugs in found.items()}


async def _plain(campaign: Campaign, name: str) -> Drawn:
    return jobs.draw(campaign.drawing, name)
