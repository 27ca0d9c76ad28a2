"""The master's main loop: take events, step the scheduler, commit, and only then send.

One commit is under way at a time. Events that arrive during it wait in the inbox and are committed together in the
next one, so an event costs less when the master is busy. An error of the store or of a step ends the loop and the
process: the truth is on disk, and a restart continues from it. An error of a listener (followers, metrics) is only
logged, because no stored row and no decision depends on listeners.
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
from loopline_master.core.events import Batch, Event, MasterStoodStill, WorkerReported
from loopline_master.core.kernel.effects import Declined, Done, Effects, Reply, Submitted
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.leases.kept_back import KeptBack
from loopline_master.core.wings.transfers.carrier import NumberedRequest
from loopline_master.core.wings.transfers.transfer_memory import asked
from loopline_master.store import Store, StoreBroken
from loopline_master.store.past.clock import LEAD_S
from loopline_master.store.queries.audit_log import AuditedAction
from loopline_master.timings import CLOCK_LOOK_EVERY_S, SAMPLE_EVERY_S, SUSPENDED_S
from loopline_shared.errors import LooplineError
from loopline_shared.protocol.worker_link import Assign

log = logging.getLogger(__name__)

MAX_BATCH = 1_000
ReplyFuture = asyncio.Future[Reply]
Posted = tuple[Event, ReplyFuture, AuditedAction | None]
AfterStep = Callable[[Effects, float, float, int], None]
"""Called after each step, once frames and replies are queued: ``(effects, step_s, commit_s, inbox_length)``.
``step_s`` includes ``commit_s``.
"""

TICK_S = 1e-6


class AssignSink(Protocol):
    """Sends the engine's messages to workers. Neither call waits or raises."""

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
        """``plan`` starts planning transfers, and posts the plan later; it neither waits nor raises."""
        self.changes = ChangeFeed()
        self._max_inbox = max_inbox
        self._after_step, self._plan = after_step, plan
        self._scheduler, self._store, self._clock = scheduler, store, clock
        self.kept_back = KeptBack(scheduler.state)
        self._inbox: deque[Posted] = deque()
        self._taken: list[Posted] = []
        self._sleep: asyncio.Future[None] | None = None  # pending while the loop has nothing to do
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._stepped_at = 0.0  # time of the last step
        self._snapshot: ReplyFuture | None = None  # pending while a snapshot is requested and not on disk
        self._end: Exception | None = None

    async def ask(self, event: Event, action: AuditedAction | None = None) -> Done | Submitted:
        """Carry out a request: on return its effects are on disk, and so is ``action``, its entry in the audit log.

        Raises LooplineError if it is declined.
        """
        reply = await self.request(event, action)
        if isinstance(reply, Declined):
            raise LooplineError(reply.code, reply.message, reply.hint, reply.status, quota=reply.quota)
        return reply

    async def request(self, event: Event, action: AuditedAction | None = None) -> Reply:
        """Return the reply to a request once its effects are on disk; it is declined if too many are waiting."""
        if len(self._inbox) >= self._max_inbox:
            return Declined(503, "busy", f"{self._max_inbox:,} requests are waiting already", "try again in a moment")
        return await self.post(event, action)

    def post(self, event: Event, action: AuditedAction | None = None) -> ReplyFuture:
        """Queue an event that must be processed. The future resolves once its effects are on disk.

        A link that awaits the future before it reads more has at most one event in the inbox.
        """
        future = asyncio.get_running_loop().create_future()
        if self._end is None:
            self._inbox.append((event, future, action))
            self._wake()
        else:
            _break(future, self._end)
        return future

    async def write_snapshot(self) -> None:
        """Write a snapshot of the log, where replay can start; it is on disk on return."""
        if self._end is not None:
            raise self._end
        self._snapshot = asyncio.get_running_loop().create_future()
        self._wake()
        await self._snapshot

    def keep_back(self, event: WorkerReported) -> bool:
        """True if a Report brings no news, so that the caller answers it now.

        Otherwise the caller must post it, and wait for its step before it passes the link's next Report to this
        method.
        """
        if self._end is not None or not self._store.is_sure or not self.kept_back.keep(event, self._clock()):
            return False
        self.changes.note_worker(event.worker)
        return True

    def stop(self, error: Exception | None = None) -> None:
        """End ``run`` after the current commit. ``run`` raises the error, if there is one."""
        self._end = self._end or error or _stopping()
        self._wake()

    async def run(self, links: AssignSink) -> None:
        """Process events until stopped. An error is raised here and to every caller that awaits a reply."""
        try:
            while self._end is None:
                await self._wait()
                self._catch_up()
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
            if self._snapshot:
                _break(self._snapshot, self._end)

    async def turn(self, links: AssignSink | None = None) -> Effects:
        """Take one step with the events in the inbox: commit it, then send.

        Results go out first and frames for workers second, because readers and idle slots wait for them. Replies to
        the events come last.
        """
        start = perf_counter()
        self._taken = [self._inbox.popleft() for _ in range(min(len(self._inbox), MAX_BATCH))]
        now, events = self._clock(), [event for event, _, _ in self._taken]
        if silence := self.kept_back.silence_events(events, now):
            self._taken[:0] = [(event, asyncio.get_running_loop().create_future(), None) for event in silence]
            events[:0] = silence
        if self._snapshot:
            self._taken.insert(0, (self._scheduler.snapshot_event(), self._snapshot, None))
            events.insert(0, self._taken[0][0])
            self._snapshot = None
        batch, self._stepped_at = Batch(now, events), now
        effects = self._scheduler.step(batch.events, batch.now)
        decided = perf_counter()
        await self._store.commit(batch, effects, _done(self._taken, effects.replies))
        commit_s = perf_counter() - decided
        self.changes.publish(effects)
        if links:
            _deliver(effects, links)
        for (_, future, _), reply in zip(self._taken, effects.replies, strict=True):
            if not future.done():  # its poster may have been cancelled
                future.set_result(reply)
        self._taken = []
        if effects.told_by_wings and self._plan and (request := asked(effects)):
            self._plan(request)
        if self._after_step:
            took_s = perf_counter() - start
            await asyncio.sleep(0)  # queued frames and replies go out first
            try:
                self._after_step(effects, took_s, commit_s, len(self._inbox))
            except Exception:
                self.changes.faults.note(self._after_step)
        return effects

    async def keep_sampling(self) -> None:
        """Sample the workers whose Reports are kept back, each once a minute, until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            await self._store.sample(self.kept_back.loads(), self._clock())

    @property
    def wake_at(self) -> float | None:
        """Time when a step is due even without an event, or None."""
        times = (self._scheduler.wake_at, self.kept_back.wake_at)
        return min((at for at in times if at is not None), default=None)

    def restart_leases(self) -> None:
        """Restart all leases before the next event: the master was suspended, and received no Reports."""
        self._inbox.appendleft((MasterStoodStill(), asyncio.get_running_loop().create_future(), None))
        self._wake()

    async def watch_clock(self) -> None:
        """Follow jumps of the wall clock: it was set, or the computer was suspended.

        The scheduler's time cannot go back, so for that the master restarts.
        """
        while True:
            await asyncio.sleep(CLOCK_LOOK_EVERY_S)
            lead_s = self._clock.lead_s
            if lead_s > LEAD_S:
                message = f"the clock was set back by {lead_s:.0f} s or more"
                set_back = StoreBroken("clock_set_back", message, "the master restarts by itself", status=503)
                set_back.is_passing = True
                self.stop(set_back)
                return
            self._catch_up()

    def _catch_up(self) -> None:
        """Follow a jump of the wall clock forward: times that workers report since then are longer than ours."""
        if (lead_s := self._clock.lead_s) < -LEAD_S:
            log.warning("the clock jumped %.0f s forward: all leases of workers restart", -lead_s)
            self._clock.catch_up()
            self.restart_leases()

    async def _wait(self) -> None:
        """Wait for an event, or until a step is due without one."""
        if self._inbox or self._snapshot or self._end is not None:
            return
        self._set_alarm(self.wake_at)
        self._sleep = asyncio.get_running_loop().create_future()
        await self._sleep
        if self._clock() < self._alarm_at < math.inf:
            return
        wake_at = self.wake_at  # Reports that were kept back have moved it
        if wake_at is None:
            return
        late_s = self._clock() - max(wake_at, self._stepped_at)  # a step may set an earlier time
        if late_s > SUSPENDED_S:
            log.warning(
                "the master made no step for %.0f s, suspended or without its database: all leases restart", late_s
            )
            self.restart_leases()

    def _wake(self) -> None:
        if self._sleep and not self._sleep.done():
            self._sleep.set_result(None)

    def _set_alarm(self, wake_at: float | None) -> None:
        """Wake the loop at ``wake_at``. An earlier alarm stays, and is set again when it fires."""
        if wake_at is None or wake_at >= self._alarm_at:
            return
        if self._alarm:
            self._alarm.cancel()
        wait_s = max(0.0, wake_at - self._clock())
        self._alarm, self._alarm_at = asyncio.get_running_loop().call_later(wait_s, self._on_alarm), wake_at

    def _on_alarm(self) -> None:
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


def _done(taken: list[Posted], replies: list[Reply]) -> list[AuditedAction]:
    """Return the audit log entries of the requests that a step carried out; they are committed with it."""
    actions = []
    for (_, _, action), reply in zip(taken, replies, strict=True):
        if action and not isinstance(reply, Declined):
            action.is_noted, action.on = True, str(reply.job) if isinstance(reply, Submitted) else action.on
            actions.append(action)
    return actions


def _stopping() -> LooplineError:
    return LooplineError("stopping", "the master is stopping", "try again when it is back", status=503)


def _break(future: ReplyFuture, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as retrieved: the poster may not wait for it


class Clock:
    """A clock that reads the wall clock once and then counts by the monotonic one. No two readings are equal."""

    def __init__(self, after: float = 0.0) -> None:
        """``after``: the last time in the log. The clock starts later, even if the wall clock was set back."""
        self._start = max(time.time(), after)
        self._monotonic = time.monotonic()
        self._last = after

    @property
    def lead_s(self) -> float:
        """Offset of this clock from the wall clock in seconds; positive if ahead."""
        return self._start + time.monotonic() - self._monotonic - time.time()

    def catch_up(self) -> None:
        """Continue from the wall clock, if that is ahead."""
        self._start -= min(0.0, self.lead_s)

    def __call__(self) -> float:
        """Return the time now."""
        now = self._start + time.monotonic() - self._monotonic
        self._last = max(now, self._last + TICK_S)
        return self._last
