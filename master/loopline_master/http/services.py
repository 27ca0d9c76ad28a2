"""What handlers work with."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from aiohttp import web

from loopline_master.core.effects import Declined, Done, Submitted
from loopline_master.core.events import Event
from loopline_master.core.scheduler import Scheduler
from loopline_master.engine import Engine
from loopline_master.files.blobs import Blobs
from loopline_master.files.retention import Keeper
from loopline_master.files.row_files import RowFiles
from loopline_master.forecaster import Forecaster
from loopline_master.http.auth import Auth
from loopline_master.links import Links
from loopline_master.metrics import Metrics
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.subscriptions import Feeds
from loopline_shared.errors import LooplineError
from loopline_shared.rest.bodies import JobView, Submission

CHECK_WITHIN_S = 5.0

Thing = TypeVar("Thing")


class Turns:
    """Work of one key is done one after the other, and to its end even if who asked for it has gone."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def take(self, key: Hashable, work: Coroutine[Any, Any, Thing]) -> Thing:
        return await asyncio.shield(self._in_turn(key, work))

    async def _in_turn(self, key: Hashable, work: Coroutine[Any, Any, Thing]) -> Thing:
        async with self._locks.setdefault(key, asyncio.Lock()):
            return await work


class Answers:
    """The latest answers to submissions, by owner and Idempotency-Key."""

    MOST = 10_000

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], Submission] = {}

    def keep(self, key: tuple[str, str], answer: Submission) -> Submission:
        self._latest[key] = answer
        if len(self._latest) > self.MOST:
            del self._latest[next(iter(self._latest))]
        return answer

    def get(self, key: tuple[str, str], default: Submission) -> Submission:
        return self._latest.get(key, default)


class OwnKeys:
    """Keys that links make up for what is submitted on them: ``<link>.<number>``.

    They are new, and need not be looked up, as long as nobody else has come with one: a client that lost the link,
    say, while its last words are still being read here.
    """

    def __init__(self) -> None:
        self._are_own: dict[str, bool] = {}  # by open link

    @contextmanager
    def of_link(self, name: str) -> Iterator[None]:
        self._are_own[name] = True
        try:
            yield
        finally:
            del self._are_own[name]

    def came_otherwise(self, key: str) -> None:
        if (name := key.rpartition(".")[0]) in self._are_own:
            self._are_own[name] = False

    def is_new(self, key: str) -> bool:
        return self._are_own.get(key.rpartition(".")[0], False)


class Listeners:
    """Those whose answer goes on for as long as there is news: so many at once, and none once the master stops."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def seat(self) -> Iterator[None]:
        """For the current task."""
        if len(self._tasks) >= self._most:
            message = f"{self._most} clients are listening, which is this master's limit"
            raise LooplineError("too_many_listeners", message, "raise limits.max_listeners", status=503)
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def dismiss(self) -> None:
        for task in self._tasks:
            task.cancel()


@dataclass(frozen=True, slots=True)
class Services:
    settings: MasterSettings
    store: Store
    scheduler: Scheduler  # to be read only
    engine: Engine
    auth: Auth
    blobs: Blobs
    rows: RowFiles
    keeper: Keeper
    links: Links
    metrics: Metrics
    listeners: Listeners
    forecaster: Forecaster
    feeds: Feeds
    turns: Turns = field(default_factory=Turns)
    answers: Answers = field(default_factory=Answers)
    own_keys: OwnKeys = field(default_factory=OwnKeys)

    async def ask(self, event: Event) -> Done | Submitted:
        """Carried out, and on disk; LooplineError where it is declined."""
        reply = await self.engine.request(event)
        if isinstance(reply, Declined):
            raise LooplineError(reply.code, reply.message, reply.hint, reply.status)
        return reply

    async def check(self) -> None:
        """LooplineError where the master cannot do its work: where the database takes no writing."""
        try:
            async with asyncio.timeout(CHECK_WITHIN_S):
                await self.store.check()
        except TimeoutError:
            message = f"the database has not answered within {CHECK_WITHIN_S:g} s"
            raise LooplineError("not_ready", message, status=503) from None

    def page_size(self, limit: int) -> int:
        return min(limit, self.settings.limits.max_page)


SERVICES = web.AppKey("services", Services)


def found(thing: Thing | None, what: str) -> Thing:
    """What was looked for; LooplineError where there is none."""
    if thing is None:
        raise LooplineError("not_found", f"there is no {what}", status=404)
    return thing


async def job_view(services: Services, job: int) -> JobView:
    return found(await services.store.jobs.view(job), f"job {job}")
