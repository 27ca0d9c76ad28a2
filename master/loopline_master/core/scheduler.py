"""The scheduler: one step from events to effects. The master, the simulator and the tests call the same object.

A step takes in its events in order, lets time do its part (leases, stalls), asks the policy for placements and
accepts what may be, and seals at most one frame for each worker concerned. It decides from its entities alone:
started again from their rows it decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import inf

from loopline_master.core.events import (
    Checkpointed,
    Event,
    JobCancelled,
    JobPaused,
    JobResumed,
    JobRetried,
    JobsForgotten,
    JobSubmitted,
    MasterStarted,
    MasterStoodStill,
    NetworkChanged,
    SchedulerSettings,
    ShareChanged,
    TransfersPlanned,
    WorkerDrained,
    WorkerForgotten,
    WorkerJoined,
    WorkerLeft,
    WorkerReported,
    WorkersHeard,
    WorkerUndrained,
)
from loopline_master.core.kernel import leases, lifecycle, lost_workers, requests, worker_sessions
from loopline_master.core.kernel.effects import Done, Effects, Reply
from loopline_master.core.kernel.placement import Placer
from loopline_master.core.kernel.state import Snapshot, State
from loopline_master.core.policies import policy_named
from loopline_master.core.policies.policy import View
from loopline_master.core.wings.exemptions import overdrawn
from loopline_master.core.wings.gangs import launch, phases
from loopline_master.core.wings.gangs.planning.live import Planning
from loopline_master.core.wings.shares.turns import cut_queues, open_accounts
from loopline_master.core.wings.transfers import carrying
from loopline_master.core.wings.trust import trust

_DONE = Done()


class Scheduler:
    """``Scheduler(snapshot)`` goes on from stored rows, ``Scheduler()`` begins an empty grid."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.state = State(snapshot or Snapshot())
        self._view = View(self.state)
        self._policy = policy_named(self.state.settings.policy)(self._view)
        self._policy_prefetches_s = self.state.prefetch_s
        self.planning = Planning(self.state)
        self._placer = Placer(self.state, self._view, self.planning)
        self._outbox = worker_sessions.Outbox()

    def step(self, events: Sequence[Event], now: float) -> Effects:
        """Return all that follows from ``events`` at ``now`` (seconds since 1970, never going back).

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
                if state.prefetch_s != self._policy_prefetches_s:  # it brought a second user
                    self._flush()
                    self._begin_policy()
                    cut_queues(self.state)
        self._flush()
        if (due_at := _due_at(state)) is not None and due_at <= state.now:
            for let_time_do_its_part in _TIME_DOES:
                let_time_do_its_part(state)
                state.flush()
            self._complete()
        has_no_gangs = not (state.index.parallel or state.plans or self.planning.book)
        if not has_no_gangs:
            self._plan()
        for _ in self._placer.place(self._policy):
            state.flush()
        if not has_no_gangs:
            self.planning.finish_step()
            state.flush()
        if state.transfers.is_due:
            carrying.ask(state)
        state.effects.assigns = self._outbox.seal(state)
        return state.gather()

    def set_policy(self, settings: SchedulerSettings) -> None:
        """Decide by these settings, and the policy that they name, from now on."""
        policy = policy_named(settings.policy)
        self.state.settings = settings
        self.state.prefetch_s = (policy.prefetch_s or settings.prefetch_s) if settings.prefetch_s else 0.0
        open_accounts(self.state)
        self._begin_policy()

    def checkpoint(self) -> Checkpointed:
        """Return the event by which the log may begin with the next step, of which it is to be the first."""
        transfers = self.state.transfers
        return Checkpointed(self.state.settings, tuple(transfers.nodes.values()), transfers.number)

    @property
    def wake_at(self) -> float | None:
        """Time at which a step is due, whether or not an event comes. None if there is no such time."""
        planned_at = self.planning.wake_at if self.planning.book else None
        times = (_due_at(self.state), self._placer.wake_at, planned_at)
        return min((at for at in times if at is not None), default=None)

    @property
    def ask_again_at(self) -> float | None:
        """Time at which the policy asked to be asked again; ``wake_at`` is never later. None if it did not."""
        return self._placer.wake_at

    def _begin_policy(self) -> None:
        """Make the policy of the settings, with its index, which depends on how much may be prefetched."""
        self._policy = policy_named(self.state.settings.policy)(self._view)
        self._policy_prefetches_s = self.state.prefetch_s
        self.state.set_policy_index(self._policy.index)

    def _plan(self) -> None:
        """Bring the plans of gangs up to date, and begin those whose start has come."""
        self.planning.revise()
        self.state.flush()
        for plan, job, workers in self.planning.due():
            launch.begin(self.state, job, plan.task, workers)
            self.state.flush()
            self.planning.note_started(plan)

    def _flush(self) -> None:
        """Flush the indexes and complete all jobs that can complete, before the next event is taken in."""
        self.state.flush()
        self._complete()

    def _complete(self) -> None:
        """Complete jobs until none can. Each may let others complete, and lets those enter that waited for it.

        First those are stopped of which too many tasks have failed.
        """
        if self.state.index.failing:
            requests.stop_failing_jobs(self.state)
            self.state.flush()
        while job := lifecycle.complete_next(self.state):
            self.state.flush()
            requests.release_followers(self.state, job)
            self.state.flush()

    def _apply(self, event: Event) -> Reply:
        match event:
            case WorkerReported():
                return self._report(event)
            case JobSubmitted():
                return requests.submit(self.state, event)
            case WorkerJoined():
                return worker_sessions.join(self.state, event)
            case WorkerLeft():
                return worker_sessions.leave(self.state, event.worker, event.session)
            case WorkersHeard():
                return leases.hear(self.state, event)
            case MasterStarted():
                return self._begin(event)
            case Checkpointed():
                return self._go_on(event)
            case MasterStoodStill():
                return leases.begin(self.state, with_sessions=False)
            case TransfersPlanned():
                return carrying.adopt(self.state, event, self._outbox.answer)
            case _:
                return self._request(event)

    def _begin(self, event: MasterStarted) -> Reply:
        self.set_policy(event.settings)
        self.planning.open()
        carrying.begin(self.state)
        return leases.begin(self.state, with_sessions=True)

    def _go_on(self, event: Checkpointed) -> Reply:
        """Go on from here as one does that begins with the rows."""
        self.set_policy(event.settings)
        self.planning.open()
        carrying.go_on(self.state, event.nodes, event.request)
        return _DONE

    def _request(
        self,
        event: JobCancelled
        | JobPaused
        | JobResumed
        | JobRetried
        | JobsForgotten
        | WorkerDrained
        | WorkerUndrained
        | WorkerForgotten
        | ShareChanged
        | NetworkChanged,
    ) -> Reply:
        match event:
            case JobCancelled():
                return requests.cancel(self.state, event)
            case JobPaused():
                return requests.pause(self.state, event)
            case JobResumed():
                return requests.resume(self.state, event)
            case JobRetried():
                return requests.retry(self.state, event)
            case JobsForgotten():
                return requests.forget(self.state, event)
            case WorkerForgotten():
                return lost_workers.forget(self.state, event)
            case ShareChanged():
                return requests.change_share(self.state, event)
            case NetworkChanged():
                return carrying.change_network(self.state, event)
            case WorkerDrained() | WorkerUndrained():
                return requests.drain(self.state, event)

    def _report(self, event: WorkerReported) -> Reply:
        worker = self.state.workers.get(event.worker)
        if worker is not None and worker.session == event.session:
            worker_sessions.reconcile(self.state, self._outbox, worker, event.report)
        return _DONE


def _stall(state: State) -> None:
    """Mark jobs as stalled that starved for too long."""
    starved_s = state.settings.stall_after_s
    for _, job_id in takewhile(lambda starving: starving[0] + starved_s <= state.now, state.index.starving.order):
        job = state.jobs[job_id]
        job.stalled = True
        state.put(job)


_TIME_DOES = (
    phases.expire, trust.end_quarantines, leases.expire, carrying.let_time_pass, _stall,
    overdrawn.look,
)  # fmt: skip


def _due_at(state: State) -> float | None:
    """Return the time at which a lease, a quarantine, or a job that starves or holds others is due; None: none is."""
    index, due_at = state.index, inf
    if index.leases.order:
        due_at = index.leases.order[0][0]
    if index.quarantines.order:
        due_at = min(due_at, index.quarantines.order[0][0])
    if index.starving.order:
        due_at = min(due_at, index.starving.order[0][0] + state.settings.stall_after_s)
    if state.gangs and (gangs_at := phases.wake_at(state)) is not None:
        due_at = min(due_at, gangs_at)
    if (overdue_at := state.transfers.overdue_at) is not None:
        due_at = min(due_at, overdue_at)
    if index.blocked and state.settings.overdrawn_after:
        due_at = min(due_at, overdrawn.looks_at(state))
    return None if due_at == inf else due_at
