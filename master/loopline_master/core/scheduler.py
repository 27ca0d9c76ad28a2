"""The scheduler: one step from events to effects. The master, the simulator and the tests call the same object.

A step takes in its events in order, lets time do its part (leases, stalls), lets the policy wish, grants what
may be granted, and seals at most one frame for each worker concerned. It decides from its entities alone:
started again from their rows it decides the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from loopline_master.core import lifecycle, membership, requests, retract
from loopline_master.core.effects import Done, Effects, Reply
from loopline_master.core.entities import Job, Worker
from loopline_master.core.events import (
    Event,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerDrained,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
    WorkerUndrained,
)
from loopline_master.core.frames import Outbox
from loopline_master.core.policies import REGISTRY, Policy, first_come
from loopline_master.core.policies.view import Placement, View
from loopline_master.core.reconcile import reconcile
from loopline_master.core.rules import dependencies, quarantine
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.state import State

_DONE = Done()
_MOST_AHEAD = 1024
"""In one step: nobody is to wait for its end while the queues of a thousand workers are filled."""


class Scheduler:
    """``Scheduler(snapshot)`` goes on from stored rows, ``Scheduler()`` begins an empty grid."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.state = State(snapshot or Snapshot())
        self._view = View(self.state)
        self._outbox = Outbox()

    def step(self, events: Sequence[Event], now: float) -> Effects:
        """Everything that follows from ``events`` at ``now`` (seconds since 1970, never going back).

        The effects name the scheduler's own entities: read them before the next step.
        """
        self.state.grid.now = max(now, self.state.grid.now)
        self._outbox = Outbox()
        replies = self.state.effects.replies
        for event in events:
            if isinstance(event, WorkerReported) and not self.state.is_due:
                replies.append(self._report(event))
            else:
                self._flush()
                replies.append(self._apply(event))
        self._flush()
        for let_time_do_its_part in (quarantine.expire, membership.expire_leases, membership.stall):
            let_time_do_its_part(self.state)
            self.state.flush()
        self._complete()
        self._plan(REGISTRY[self.state.settings.policy])
        self.state.effects.assigns = self._outbox.seal(self.state)
        return self.state.gather()

    def govern(self, settings: SchedulerSettings) -> None:
        """Decide by these settings from now on."""
        self.state.settings = settings
        policy = REGISTRY[settings.policy]
        own_s = policy.ahead_s if policy.ahead_s and settings.ahead_s else None
        self.state.ahead_s = settings.ahead_s if own_s is None else own_s
        self.state.govern(policy.index(self.state) if policy.index else None)

    @property
    def wake_at(self) -> float | None:
        """When a step is due although nothing has happened; None: never."""
        return membership.wake_at(self.state)

    def _flush(self) -> None:
        """Whatever comes next finds the indexes as things are, and no job that could have completed."""
        self.state.flush()
        self._complete()

    def _complete(self) -> None:
        """A job that leaves may let others complete, and lets those enter that waited for it."""
        while job := lifecycle.complete_next(self.state):
            self.state.flush()
            dependencies.release_followers(self.state, job)
            self.state.flush()

    def _apply(self, event: Event) -> Reply:
        match event:
            case WorkerReported():
                return self._report(event)
            case WorkerJoined():
                return membership.join(self.state, event)
            case WorkerLeft():
                return membership.leave(self.state, event.worker, event.session)
            case WorkerDrained() | WorkerUndrained():
                return requests.drain(self.state, event.worker, draining=isinstance(event, WorkerDrained))
            case MasterStarted():
                return self._begin(event)
            case _:
                return self._request(event)

    def _begin(self, event: MasterStarted) -> Reply:
        self.govern(event.settings)
        return membership.master_started(self.state)

    def _request(self, event: JobSubmitted | JobCancelled | JobPaused | JobResumed | JobRetried) -> Reply:
        match event:
            case JobSubmitted():
                return requests.submit(self.state, event)
            case JobCancelled():
                return requests.cancel(self.state, event)
            case JobPaused():
                return requests.pause(self.state, event)
            case JobResumed():
                return requests.resume(self.state, event)
            case JobRetried():
                return requests.retry(self.state, event)

    def _report(self, event: WorkerReported) -> Reply:
        worker = self.state.workers.get(event.worker)
        if worker is not None and worker.session == event.session:
            reconcile(self.state, self._outbox, worker, event.report)
        return _DONE

    def _plan(self, policy: Policy) -> None:
        index, attempts = self.state.index, self.state.index.attempts
        self._relieve(unless_ready=True)
        patience = most = 2 * (len(index.live) + len(index.room.idle.order)) + 10  # with wishes in vain on end
        for wish in policy.plan(self._view):
            granted = self._send(wish) if wish.ahead else self._grant(wish)
            patience = most if granted else patience - 1
            if patience < 0:
                break
        self._relieve(unless_ready=False)
        if policy.ahead is not None and self.state.ahead_s > 0:
            self._send_ahead(policy.ahead(self._view))
        if not (attempts.used or attempts.queues.of_worker):  # the policy left all idle: one task keeps it going
            for wish in first_come.plan(self._view):
                if self._grant(wish):
                    break

    def _relieve(self, *, unless_ready: bool) -> None:
        if self.state.index.attempts.queues.of_worker and self.state.index.room.idle.order:
            for _ in retract.relieve(self.state, self._view, unless_ready=unless_ready):
                self.state.flush()

    def _grant(self, wish: Placement) -> bool:
        """Carry out a wish if it may be; a wish for a held task spends its job's turn all the same."""
        state, task = self.state, wish.task
        job, worker = state.jobs.get(wish.job), state.workers.get(wish.worker)
        if job is None or worker is None:
            return False
        is_fresh = task in state.fresh[job.id]
        if not self._may_start(job, task, worker, is_fresh=is_fresh):
            return False
        is_held = is_fresh and state.index.is_held(job)
        job.cursor, state.grid.pointer = task, job.arrival
        if is_held:
            state.put(job)
        else:
            if not is_fresh:
                lifecycle.withdraw(state, job.task_id(task), f"worker {worker.name} could begin it at once")
            lifecycle.start_attempt(state, job, task, worker)
        state.flush()
        return not is_held

    def _send_ahead(self, wishes: Iterator[Placement]) -> None:
        """Carry out what may be. ``wishes`` ends by itself where nothing more may (View.workers_with_room); where
        there is much, it goes on in the next step.
        """
        for wish in islice(wishes, _MOST_AHEAD):
            self._send(wish)

    def _send(self, wish: Placement) -> bool:
        """Have a task wait at a worker for a slot, if it may."""
        job, worker = self.state.jobs.get(wish.job), self.state.workers.get(wish.worker)
        if job is None or worker is None or not job.is_live or job.paused:
            return False
        if not self._view.may_wait(job, wish.task, worker):
            return False
        job.cursor, self.state.grid.pointer = wish.task, job.arrival
        lifecycle.start_attempt(self.state, job, wish.task, worker, ahead=True)
        self.state.flush()
        return True

    def _may_start(self, job: Job, task: int, worker: Worker, *, is_fresh: bool) -> bool:
        """Whether the task is one to start or to replicate, on this worker as it is now, and not there already."""
        index = self.state.index
        if not job.is_live or job.paused or not self._view.fits(job, worker):
            return False
        if not is_fresh:
            if task not in index.pools[job.id].waiting and task not in index.to_replicate(job):
                return False
            if index.on_worker(job.task_id(task), worker.name):
                return False
        return worker.standing >= 0 or not self._view.should_go_elsewhere(job, task, worker)
