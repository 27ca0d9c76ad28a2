"""The kernel's scheduler: one step from events to effects.

A step applies its events in order, applies the passage of time (leases, stalls), asks the policy for placements and
accepts the allowed ones, and seals at most one frame for each worker concerned. It decides from its entities alone:
restarted from their rows it decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from loopline_master.core.kernel import lifecycle, requests
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.effects import Done, Effects, Reply
from loopline_master.core.kernel.kernel_events import (
    Beginning,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobsForgotten,
    JobSubmitted,
    MasterStarted,
    WorkerDrained,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
    WorkerUndrained,
)
from loopline_master.core.kernel.placement import Placer
from loopline_master.core.kernel.scheduler_settings import SchedulerSettings
from loopline_master.core.kernel.sessions import worker_sessions
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_master.core.policies import policy_named
from loopline_master.core.policies.policy import View

_DONE = Done()


class KernelScheduler:
    """Continues from stored rows, with these wings."""

    def __init__(self, rows: Rows, wings: Iterable[type[Wing]] = ()) -> None:
        self.state = State(rows)
        self.state.open_wings([wing(self.state) for wing in wings], rows)
        self._view = View(self.state)
        self._policy = policy_named(self.state.settings.policy)(self._view)
        self._policy_prefetches_s = self.state.prefetch_s
        self._placer = Placer(self.state, self._view)
        self._outbox = worker_sessions.Outbox()

    def step(self, events: Sequence[Any], now: float) -> Effects:
        """Return the effects of ``events`` at ``now`` (seconds since 1970, never decreasing).

        The effects name the scheduler's own entities: read them before the next step.
        """
        state = self.state
        state.grid.now = max(now, state.grid.now)
        self._outbox = worker_sessions.Outbox()
        replies = state.effects.replies
        for event in events:
            if isinstance(event, WorkerReported) and not state.is_due:
                replies.append(self._report(event))
            else:
                self._flush()
                replies.append(self._apply(event))
                if state.is_policy_outdated or state.prefetch_s != self._policy_prefetches_s:  # or a second user came
                    self._flush()
                    self._begin_policy()
        self._flush()
        if (due_at := self._due_at()) is not None and due_at <= state.now:
            self._flush_after(partial(lifecycle.end_delays, state), *state.wings.expire)
            self._complete()
        self._place()
        self._flush_after(*state.wings.finish_step)
        for addressees in state.wings.addressees:
            for name in addressees():
                self._outbox.answer(name)
        state.effects.assigns = self._outbox.seal(state)
        return state.gather()

    def set_policy(self, settings: SchedulerSettings) -> None:
        """Use these settings, and the policy that they name, from now on."""
        policy = policy_named(settings.policy)
        self.state.settings = settings
        self.state.prefetch_s = (policy.prefetch_s or settings.prefetch_s) if settings.prefetch_s else 0.0
        for take_in in self.state.wings.settings_change:
            take_in()
        self._begin_policy()

    @property
    def wake_at(self) -> float | None:
        """Time of the next step that is due without an event. None if there is no such time."""
        times = (self._due_at(), self._placer.wake_at)
        return min((at for at in times if at is not None), default=None)

    @property
    def ask_again_at(self) -> float | None:
        """Time that the policy gave for its next call; ``wake_at`` is never later. None if it gave no time."""
        return self._placer.wake_at

    def _due_at(self) -> float | None:
        """Return the earliest time when a wing is due, or a task may be tried again; None if there is none."""
        at = self.state.index.next_retry_at
        for due_at in self.state.wings.due_at:
            if (other := due_at()) is not None and (at is None or other < at):
                at = other
        return at

    def _flush_after(self, *calls: Callable[[], None]) -> None:
        for call in calls:
            call()
            self.state.flush()

    def _place(self) -> None:
        """Place tasks. If placing ends the last open task of a job, complete the job and place what it let in."""
        index = self.state.index
        while True:
            self._draw(*(place() for place in self.state.wings.place))
            self._draw(self._placer.place(self._policy))
            if not index.complete.starts and not index.failing:
                return
            self._complete()

    def _draw(self, *generators: Iterator[None]) -> None:
        """Draw from generators until they end, and flush the indexes whenever one yields."""
        for generator in generators:
            for _ in generator:
                self.state.flush()

    def _begin_policy(self) -> None:
        """Create the policy of the settings and its index, which depends on the prefetch limit."""
        self._policy = policy_named(self.state.settings.policy)(self._view)
        self._policy_prefetches_s, self.state.is_policy_outdated = self.state.prefetch_s, False
        self.state.set_policy_index(self._policy.index)

    def _flush(self) -> None:
        """Flush the indexes and complete all jobs that can complete, before the next event."""
        self.state.flush(completes=True)
        self._complete()

    def _complete(self) -> None:
        """Complete jobs until none can. Each may let others complete, and admits the jobs that waited for it.

        Before that, jobs that have reached their limit of failed tasks are stopped.
        """
        if self.state.index.failing:
            requests.stop_failing_jobs(self.state)
            self.state.flush()
        while lifecycle.complete_next(self.state) or self.state.departed:
            departed, self.state.departed = self.state.departed, []
            self.state.flush()
            for job in departed:
                requests.release_followers(self.state, job)
                self.state.flush()

    def _apply(self, event: Any) -> Reply:
        """Apply an event: first the kernel, then the wings that handle it. Only one of them replies."""
        if isinstance(event, Beginning):
            self.set_policy(event.settings)
        handle = _HANDLERS.get(type(event))
        reply = handle(self, event) if handle is not None else None
        for take_in in self.state.wings.events.get(type(event), ()):
            reply = take_in(event, self._outbox.answer) or reply
        if isinstance(event, MasterStarted):
            worker_sessions.close_all(self.state)
        return reply or _DONE

    def _report(self, event: WorkerReported) -> Reply:
        worker = self.state.workers.get(event.worker)
        if worker is not None and worker.session == event.session:
            worker_sessions.reconcile(self.state, self._outbox, worker, event.report)
        return _DONE


_Handler = Callable[[KernelScheduler, Any], Reply | None]


def _of(carry_out: Callable[[State, Any], Reply]) -> _Handler:
    return lambda scheduler, event: carry_out(scheduler.state, event)


_HANDLERS: Mapping[type, _Handler] = {
    WorkerReported: KernelScheduler._report,
    JobSubmitted: _of(requests.submit),
    JobCancelled: _of(requests.cancel),
    JobPaused: _of(requests.pause),
    JobResumed: _of(requests.resume),
    JobRetried: _of(requests.retry),
    JobsForgotten: _of(requests.forget),
    WorkerJoined: _of(worker_sessions.join),
    WorkerLeft: _of(lambda state, event: worker_sessions.leave(state, event.worker, event.session)),
    WorkerDrained: _of(requests.drain),
    WorkerUndrained: _of(requests.drain),
}
