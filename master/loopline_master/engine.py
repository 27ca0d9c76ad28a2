"""The loop that is the master: take in what has happened, step, commit, and only then speak.

One commit is under way at a time; what happens meanwhile waits in the inbox and is committed together next, so
that the busier the master, the less an event costs. An error of the store or of a step ends the loop, and with
it the process: the truth is on disk, and a restart goes on from there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from loopline_master.clock import Clock
from loopline_master.core.effects import Declined, Effects, Reply
from loopline_master.core.events import Batch, Event
from loopline_master.core.scheduler import Scheduler
from loopline_master.store import Store
from loopline_shared.errors import LooplineError
from loopline_shared.protocol.messages import Assign

MAX_BATCH = 1_000
MAX_NEWS = 10_000

Ticket = asyncio.Future[Reply]


class Links(Protocol):
    """The open worker links. Neither call waits or raises."""

    def deliver(self, worker: str, assign: Assign) -> None: ...

    def close(self, worker: str, session: int) -> None: ...


class Engine:
    """``request`` and ``post`` put events in; ``run`` works them off."""

    def __init__(self, scheduler: Scheduler, store: Store, clock: Clock, *, max_inbox: int = 10_000) -> None:
        self.news = News()
        self._max_inbox = max_inbox
        self._scheduler, self._store, self._clock = scheduler, store, clock
        self._inbox: deque[tuple[Event, Ticket]] = deque()
        self._taken: list[tuple[Event, Ticket]] = []
        self._called = asyncio.Event()
        self._end: Exception | None = None

    async def request(self, event: Event) -> Reply:
        """A user's wish: answered once all that follows is on disk, or declined where too much is waiting."""
        if len(self._inbox) >= self._max_inbox:
            return Declined(503, "busy", f"{self._max_inbox:,} requests are waiting already", "try again in a moment")
        return await self.post(event)

    def post(self, event: Event) -> Ticket:
        """What has happened, and must be heard. The ticket resolves when it is on disk: a link that waits for it
        before it reads on has but one event here."""
        ticket = asyncio.get_running_loop().create_future()
        if self._end is None:
            self._inbox.append((event, ticket))
            self._called.set()
        else:
            _break(ticket, self._end)
        return ticket

    def stop(self) -> None:
        """End ``run`` after the commit that is under way."""
        self._end = self._end or _stopping()
        self._called.set()

    async def run(self, links: Links) -> None:
        """Work until stopped. Whatever breaks it is raised, to those who wait for an answer as well."""
        try:
            while self._end is None:
                await self._wait()
                await self.turn(links)
        except Exception as error:
            self._end = error
            raise
        finally:
            self._end = self._end or _stopping()
            for _, ticket in (*self._taken, *self._inbox):
                _break(ticket, self._end)

    async def turn(self, links: Links | None = None) -> Effects:
        """One step with what is in the inbox: committed, and then told. Results go first, then what workers are to
        do: somebody waits for them. Whoever posted what led to it comes last.
        """
        self._taken = [self._inbox.popleft() for _ in range(min(len(self._inbox), MAX_BATCH))]
        batch = Batch(self._clock(), [event for event, _ in self._taken])
        effects = self._scheduler.step(batch.events, batch.now)
        await self._store.commit(batch, effects)
        self.news.publish(effects)
        if links:
            _deliver(effects, links)
        for (_, ticket), reply in zip(self._taken, effects.replies, strict=True):
            if not ticket.done():  # who asked may have gone
                ticket.set_result(reply)
        self._taken = []
        return effects

    async def _wait(self) -> None:
        """Until something has happened, or time alone changes something."""
        if self._inbox or self._end is not None:
            return
        self._called.clear()
        alarm, wake_at = None, self._scheduler.wake_at
        if wake_at is not None:
            alarm = asyncio.get_running_loop().call_later(max(0.0, wake_at - self._clock()), self._called.set)
        await self._called.wait()
        if alarm:
            alarm.cancel()


def _deliver(effects: Effects, links: Links) -> None:
    for worker, assign in effects.assigns.items():
        links.deliver(worker, assign)
    for worker, session in effects.closes:
        links.close(worker, session)


def _stopping() -> LooplineError:
    return LooplineError("stopping", "the master is stopping", "try again when it is back", status=503)


def _break(ticket: Ticket, error: Exception) -> None:
    if not ticket.done():
        ticket.set_exception(error)
        ticket.exception()  # nobody need wait for it


@dataclass(slots=True)
class Change:
    """What commits concerned since one last looked; ``missed``: more than is named here."""

    jobs: dict[int, None] = field(default_factory=dict)  # as sets that remember what came first
    workers: dict[str, None] = field(default_factory=dict)
    missed: bool = False


class Subscription:
    """Gathers what has changed until it is asked for; of too much it forgets the oldest."""

    def __init__(self) -> None:
        self._change = Change()
        self._changed = asyncio.Event()

    async def next(self) -> Change:
        """What has changed since the last call; waits for something to change."""
        await self._changed.wait()
        self._changed.clear()
        change, self._change = self._change, Change()
        return change

    def add(self, effects: Effects) -> None:
        change = self._change
        for of in (effects.jobs, (task.job for task in effects.tasks), (attempt.job for attempt in effects.attempts)):
            change.jobs.update(dict.fromkeys(of))
        change.workers.update(dict.fromkeys(effects.workers))
        for names in (change.jobs, change.workers):
            while len(names) > MAX_NEWS:
                del names[next(iter(names))]  # type: ignore[arg-type]
                change.missed = True
        if change.jobs or change.workers:
            self._changed.set()


class Listener(Protocol):
    def add(self, effects: Effects) -> None:
        """These were committed; entities in them are as they are now only until this returns."""


class News:
    """Tells those who wait for something to happen (long requests, event streams) when to look again."""

    def __init__(self) -> None:
        self._subscriptions: dict[Listener, None] = {}  # in order: whoever came first hears first

    def tell(self, listener: Listener) -> None:
        """From now on, of everything."""
        self._subscriptions[listener] = None

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """From now on: first subscribe, then read, then wait, and nothing slips by."""
        subscription = Subscription()
        self._subscriptions[subscription] = None
        try:
            yield subscription
        finally:
            del self._subscriptions[subscription]

    def publish(self, effects: Effects) -> None:
        for subscription in self._subscriptions:
            subscription.add(effects)
