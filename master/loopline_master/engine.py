"""The loop that is the master: take in what has happened, step, commit, and only then send.

One commit is under way at a time. Events that arrive meanwhile wait in the inbox and are committed together next:
the busier the master, the less an event costs. An error of the store or of a step ends the loop, and with it the
process: the truth is on disk, and a restart continues from there. An error of those who only watch commits
(followers, metrics) is logged: nothing that is stored or decided depends on them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from loopline_master.change_feed import ChangeFeed
from loopline_master.core.effects import Declined, Done, Effects, Reply, Submitted
from loopline_master.core.events import Batch, Event, MasterStoodStill, WorkerReported
from loopline_master.core.reports.kept_back import KeptBack
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.transfers.carrier import NumberedRequest
from loopline_master.store import Store, StoreBroken
from loopline_master.store.past.clock import LEAD_S
from loopline_master.store.queries.audit_log import Deed
from loopline_master.timings import CLOCK_LOOK_EVERY_S, SAMPLE_EVERY_S, STOOD_STILL_S
from loopline_shared.errors import LooplineError
from loopline_shared.protocol.worker_link import Assign

log = logging.getLogger(__name__)

MAX_BATCH = 1_000
ReplyFuture = asyncio.Future[Reply]
Posted = tuple[Event, ReplyFuture, Deed | None]
AfterStep = Callable[[Effects, float, float, int], None]
"""Hears of a step once its frames and replies have gone out: its effects, the seconds that it took, those of its
commit among them, and how many events had come meanwhile.
"""

TICK_S = 1e-6


class AssignSink(Protocol):
    """Takes what the engine sends to workers. Neither call waits or raises."""

    def deliver(self, worker: str, assign: Assign) -> None:
        """Send a frame to a worker, if it is connected."""

    def close(self, worker: str, session: int) -> None:
        """Close the link of this session, if it is open."""


class Engine:
    """The loop of the master: ``ask`` and ``post`` put events in, and ``run`` processes them."""

    def __init__(
        self,
        scheduler: Scheduler,
        store: Store,
        clock: Clock,
        *,
        max_inbox: int = 10_000,
        after_step: AfterStep | None = None,
        plan: Callable[[NumberedRequest], None] | None = None,
    ) -> None:
        """``plan`` begins to make a plan of transfers, which is to be posted; it neither waits nor raises."""
        self.changes = ChangeFeed()
        self._max_inbox = max_inbox
        self._after_step, self._plan = after_step, plan
        self._scheduler, self._store, self._clock = scheduler, store, clock
        self.kept_back = KeptBack(scheduler.state)
        self._inbox: deque[Posted] = deque()
        self._taken: list[Posted] = []
        self._sleep: asyncio.Future[None] | None = None  # of the loop, while there is nothing to do
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._checkpointed: ReplyFuture | None = None  # a checkpoint is asked for, and not yet on disk
        self._end: Exception | None = None

    async def ask(self, event: Event, deed: Deed | None = None) -> Done | Submitted:
        """Carry out a request; it is on disk on return, with the deed. Raises LooplineError if it is declined."""
        reply = await self.request(event, deed)
        if isinstance(reply, Declined):
            raise LooplineError(reply.code, reply.message, reply.hint, reply.status, quota=reply.quota)
        return reply

    async def request(self, event: Event, deed: Deed | None = None) -> Reply:
        """Return the reply to a request once its effects are on disk; it is declined if too many are waiting."""
        if len(self._inbox) >= self._max_inbox:
            return Declined(503, "busy", f"{self._max_inbox:,} requests are waiting already", "try again in a moment")
        return await self.post(event, deed)

    def post(self, event: Event, deed: Deed | None = None) -> ReplyFuture:
        """Put in an event that must be processed. The future resolves when it is on disk, with its deed.

        A link that waits for it before it reads on has only one event in the inbox.
        """
        future = asyncio.get_running_loop().create_future()
        if self._end is None:
            self._inbox.append((event, future, deed))
            self._wake()
        else:
            _break(future, self._end)
        return future

    async def checkpoint(self) -> None:
        """Have the log note a place from which it can be replayed; it is on disk on return."""
        if self._end is not None:
            raise self._end
        self._checkpointed = asyncio.get_running_loop().create_future()
        self._wake()
        await self._checkpointed

    def keep_back(self, event: WorkerReported) -> bool:
        """True if a Report brings nothing new: it is to be answered now. Otherwise it is to be posted, and stepped
        before the next Report of its link is shown here.
        """
        if self._end is not None or not self._store.is_sure or not self.kept_back.keep(event, self._clock()):
            return False
        self.changes.note_worker(event.worker)
        return True

    def stop(self, error: Exception | None = None) -> None:
        """End ``run`` after the commit that is under way; it raises the error, if there is one."""
        self._end = self._end or error or _stopping()
        self._wake()

    async def run(self, links: AssignSink) -> None:
        """Work until stopped. An error is raised here and to those who wait for a reply."""
        try:
            while self._end is None:
                await self._wait()
                await self.turn(links)
            if isinstance(self._end, StoreBroken):
                raise self._end
        except Exception as error:
            self._end = error
            raise
        finally:
            self._end = self._end or _stopping()
            for _, future, _ in (*self._taken, *self._inbox):
                _break(future, self._end)
            if self._checkpointed:
                _break(self._checkpointed, self._end)

    async def turn(self, links: AssignSink | None = None) -> Effects:
        """Take one step with the events in the inbox: commit it, then send.

        Results go out first, then frames for workers: somebody waits for them. Replies to the events come last.
        """
        start = perf_counter()
        self._taken = [self._inbox.popleft() for _ in range(min(len(self._inbox), MAX_BATCH))]
        now, events = self._clock(), [event for event, _, _ in self._taken]
        if told := self.kept_back.told(events, now):
            self._taken[:0] = [(event, asyncio.get_running_loop().create_future(), None) for event in told]
            events[:0] = told
        if self._checkpointed:
            self._taken.insert(0, (self._scheduler.checkpoint(), self._checkpointed, None))
            events.insert(0, self._taken[0][0])
            self._checkpointed = None
        batch = Batch(now, events)
        effects = self._scheduler.step(batch.events, batch.now)
        decided = perf_counter()
        await self._store.commit(batch, effects, _done(self._taken, effects.replies))
        commit_s = perf_counter() - decided
        self.changes.publish(effects)
        if links:
            _deliver(effects, links)
        for (_, future, _), reply in zip(self._taken, effects.replies, strict=True):
            if not future.done():  # its poster may have gone
                future.set_result(reply)
        self._taken = []
        if effects.asked and self._plan:
            self._plan(effects.asked)
        if self._after_step:
            took_s = perf_counter() - start
            await asyncio.sleep(0)  # queued frames and replies go out first
            try:
                self._after_step(effects, took_s, commit_s, len(self._inbox))
            except Exception:
                self.changes.faults.note(self._after_step)
        return effects

    async def keep_sampling(self) -> None:
        """Have the workers sampled whose Reports are kept back, each once a minute, for ever."""
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            await self._store.sample(self.kept_back.loads(), self._clock())

    @property
    def wake_at(self) -> float | None:
        """Time at which a step is due without an event. None if there is no such time."""
        times = (self._scheduler.wake_at, self.kept_back.wake_at)
        return min((at for at in times if at is not None), default=None)

    def begin_leases(self) -> None:
        """Have every lease begin anew before anything else: time has passed in which nobody was heard."""
        self._inbox.appendleft((MasterStoodStill(), asyncio.get_running_loop().create_future(), None))
        self._wake()

    async def watch_clock(self) -> None:
        """Follow the wall clock: it was set, or the computer suspended. To go back, the master has to start over."""
        while True:
            await asyncio.sleep(CLOCK_LOOK_EVERY_S)
            lead_s = self._clock.lead_s
            if lead_s > LEAD_S:
                message = f"the clock was set back by {lead_s:.0f} s or more"
                set_back = StoreBroken("clock_set_back", message, "the master starts over by itself", status=503)
                set_back.is_passing = True
                self.stop(set_back)
                return
            if lead_s < -LEAD_S:
                log.warning("the clock went %.0f s forward: the leases of workers begin anew", -lead_s)
                self._clock.catch_up()
                self.begin_leases()

    async def _wait(self) -> None:
        """Wait for an event, or for the time at which a step is due without one."""
        if self._inbox or self._checkpointed or self._end is not None:
            return
        wake_at = self.wake_at
        self._set_alarm(wake_at)
        self._sleep = asyncio.get_running_loop().create_future()
        await self._sleep
        if wake_at is not None and (late_s := self._clock() - wake_at) > STOOD_STILL_S:
            log.warning("the master stood still for %.0f s or longer: the leases of its workers begin anew", late_s)
            self.begin_leases()

    def _wake(self) -> None:
        if self._sleep and not self._sleep.done():
            self._sleep.set_result(None)

    def _set_alarm(self, wake_at: float | None) -> None:
        """Have the loop woken then. An alarm that is set for earlier stays, and is set anew when it goes off."""
        if wake_at is None or wake_at >= self._alarm_at:
            return
        if self._alarm:
            self._alarm.cancel()
        wait_s = max(0.0, wake_at - self._clock())
        self._alarm, self._alarm_at = asyncio.get_running_loop().call_later(wait_s, self._go_off), wake_at

    def _go_off(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        wake_at = self.wake_at
        if wake_at is not None and wake_at <= self._clock():
            self._wake()
        else:
            self._set_alarm(wake_at)


def _deliver(effects: Effects, links: AssignSink) -> None:
    for worker, assign in effects.assigns.items():
        links.deliver(worker, assign)
    for worker, session in effects.closes:
        links.close(worker, session)


def _done(taken: list[Posted], replies: list[Reply]) -> list[Deed]:
    """Return the deeds that a step has carried out, which are noted with it."""
    deeds = []
    for (_, _, deed), reply in zip(taken, replies, strict=True):
        if deed and not isinstance(reply, Declined):
            deed.is_noted, deed.on = True, str(reply.job) if isinstance(reply, Submitted) else deed.on
            deeds.append(deed)
    return deeds


def _stopping() -> LooplineError:
    return LooplineError("stopping", "the master is stopping", "try again when it is back", status=503)


def _break(future: ReplyFuture, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as retrieved: the poster may not wait for it


class Clock:
    """A clock that reads the wall clock once and then counts by the monotonic one. No two readings are equal."""

    def __init__(self, after: float = 0.0) -> None:
        """Start the clock later than ``after``, the last time in the log: the wall clock may have been set back."""
        self._start = max(time.time(), after)
        self._monotonic = time.monotonic()
        self._last = after

    @property
    def lead_s(self) -> float:
        """The lead of this clock over the wall clock; below 0 it is behind."""
        return self._start + time.monotonic() - self._monotonic - time.time()

    def catch_up(self) -> None:
        """Go on from the wall clock, which is ahead."""
        self._start -= min(0.0, self.lead_s)

    def __call__(self) -> float:
        """Return the time now."""
        now = self._start + time.monotonic() - self._monotonic
        self._last = max(now, self._last + TICK_S)
        return self._last
