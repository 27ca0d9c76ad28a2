"""Placement: draws a policy's proposals, checks each, and starts or prefetches what is accepted.

Before that, a prefetched attempt is retracted from a worker where it would wait in vain while another worker is idle
and would be done with it earlier. Nothing of it has run, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf

from loopline_master.core.estimates import measure
from loopline_master.core.kernel import eligibility, lifecycle
from loopline_master.core.kernel.door.mechanism import Ask, Purpose
from loopline_master.core.kernel.eligibility import Prefetch
from loopline_master.core.kernel.entities import Attempt, Job, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.policies.first_come import FirstCome
from loopline_master.core.policies.policy import Instead, Later, Placement, Policy, Proposal, View

_MOST_PREFETCHED = 1024
"""In one step: nobody is to wait for its end while the queues of a thousand workers are filled."""
_LONGEST_WAIT_S = 3600.0
"""A policy that waits is asked again after so long, whatever it answered."""

_CLEARLY_S = 0.05
"""A move costs a frame to each of two workers: it has to bring the end so much nearer."""
_CLOSELY_S = 1e-6
"""Times are told apart to so much."""
_LOOK_AT = 4
"""So many workers' queues are looked at for one that is idle, the longest first ..."""
_OFFER_TO = 8
"""... and so many idle workers at each step."""


class Placer:
    """Asks the policy in force; ``wake_at`` is the earliest time for which it answered Later, if any."""

    def __init__(self, state: State, view: View) -> None:
        self.wake_at: float | None = None
        self._state, self._view = state, view
        self._fallback = FirstCome(view)

    def place(self, policy: Policy) -> Iterator[None]:
        """Place what the policy proposes and may be placed: on free workers, then at busy ones.

        Yields whenever the index must be flushed before the next change.
        """
        state = self._state
        self.wake_at, state.accepted = None, None
        attempts, idle = state.index.attempts, state.index.slots.idle
        if attempts.queues.of_worker and idle.order:
            yield from self._relieve(unless_ready=True)
        plan: Ask = policy.plan
        prefetch: Ask = policy.prefetch
        for in_turn in state.wings.in_turn:
            plan, prefetch = in_turn(plan), in_turn(prefetch)
        yield from self._start_on_free(plan(self._view))
        if attempts.queues.of_worker and idle.order:
            yield from self._relieve(unless_ready=False)
        if policy.prefetches and state.prefetch_s > 0:
            yield from self._prefetch(prefetch(self._view))
        for replicate in state.wings.replicate if policy.replicates else ():
            yield from replicate()
        if self.wake_at is None and state.index.ready and not (attempts.used or attempts.queues.of_worker):
            self._keep_going()
            yield

    def accept(self, placement: Placement) -> bool:
        """Carry out a proposal if it may be; True if it led to an attempt.

        What the policy has just asked the View is not asked again: nothing has changed meanwhile.
        """
        state, name, task = self._state, placement.worker, placement.task
        accepted, state.accepted = state.accepted, None
        is_known = accepted is not None and accepted == (placement.job, task, name)
        job, worker = state.jobs.get(placement.job), state.workers.get(name)
        if job is None or worker is None:
            return False
        if name in state.index.slots.idle.keys:
            return self._start(job, task, worker, is_known=is_known)
        return self._send_ahead(job, task, worker, is_known=is_known)

    def _accept_instead(self, proposal: Instead) -> bool:
        """Carry out a proposal of another task than the one whose turn it is, if it may be."""
        job = self._state.jobs[proposal.placement.job]
        cursor = job.cursor
        accepted = self.accept(proposal.placement)
        job.cursor = cursor
        return accepted

    def _start_on_free(self, proposals: Iterator[Proposal]) -> Iterator[None]:
        """Accept proposals until they end, or too many in a row were in vain for a grid of this size."""
        index = self._state.index
        patience = most = 2 * (len(index.live) + len(index.slots.idle.order)) + 10
        for proposal in proposals:
            if isinstance(proposal, Placement):
                for turn in proposal.spent:
                    self.accept(turn)
                    yield
                accepted = self.accept(proposal)
                yield
            elif isinstance(proposal, Instead):
                accepted = self._accept_instead(proposal)
                yield
            else:
                accepted = self._note(proposal)
            patience = most if accepted else patience - 1
            if patience < 0:
                break

    def _prefetch(self, proposals: Iterator[Proposal]) -> Iterator[None]:
        """Accept what may wait. Proposals end by themselves where nothing more may; the next step goes on."""
        for proposal in islice(proposals, _MOST_PREFETCHED):
            if isinstance(proposal, Placement):
                self.accept(proposal)
                yield
            elif isinstance(proposal, Instead):
                self._accept_instead(proposal)
                yield
            else:
                self._note(proposal)

    def _keep_going(self) -> None:
        """Start one task in a grid that the policy left all idle."""
        for proposal in self._fallback.plan(self._view):
            if isinstance(proposal, Placement) and self.accept(proposal):
                return
            if isinstance(proposal, Instead) and self._accept_instead(proposal):
                return

    def _note(self, later: Later) -> bool:
        """Remember when to ask again, in an hour at the latest. A time that is over counts as no answer."""
        now = self._state.now
        if later.at > now:
            self.wake_at = min(later.at, now + _LONGEST_WAIT_S, self.wake_at or inf)
        return False

    def _relieve(self, *, unless_ready: bool) -> Iterator[None]:
        """Have idle workers begin attempts that only wait elsewhere. (These come before replicas.)

        Yields after each move: the index must be flushed before the next.
        ``unless_ready``: leave out workers that could start something else, for that is the policy's affair.
        """
        state = self._state
        slots = state.index.slots
        for name in [entry[-1] for entry in slots.idle.order[:_OFFER_TO]]:
            worker = state.workers[name]
            if unless_ready and _could_start(state, worker):
                continue
            while slots.free_slots(worker) > 0 and (found := _worth_moving(state, self._view.prefetch, worker)):
                if isinstance(found, Later):
                    self._note(found)
                    break
                has_begun = _move(state, found, worker)
                yield
                if not has_begun:
                    break

    def _start(self, job: Job, task: int, worker: Worker, *, is_known: bool) -> bool:
        """Start the task on a free worker, if it may. Held, or under some vetoes, it spends its job's turn."""
        state = self._state
        is_fresh = task in state.fresh[job.id]
        if not (is_known or eligibility.may_start(state, job, task, worker, is_fresh=is_fresh)):
            return False
        veto = state.wings.veto(job, task, worker, Purpose.START) if state.wings.vetoes else None
        if veto is not None and not veto.spends_turn:
            return False
        self._spend_turn(job, task)
        if veto is not None or (is_fresh and state.index.is_held(job)):
            state.put(job)
            return False
        if not is_fresh:
            lifecycle.retract_task(state, job.task_id(task), f"worker {worker.name} could begin it at once")
        lifecycle.start_attempt(state, job, task, worker)
        return True

    def _send_ahead(self, job: Job, task: int, worker: Worker, *, is_known: bool) -> bool:
        """Have the task wait at a busy worker for a slot, if it may."""
        if not job.is_live or job.paused or not (is_known or self._view.prefetch.may_wait(job, task, worker)):
            return False
        if self._state.wings.vetoes and self._state.wings.veto(job, task, worker, Purpose.PREFETCH) is not None:
            return False
        self._spend_turn(job, task)
        lifecycle.start_attempt(self._state, job, task, worker, ahead=True)
        return True

    def _spend_turn(self, job: Job, task: int) -> None:
        job.cursor, self._state.grid.pointer = task, job.turn
        for take_in in self._state.wings.turn_passes:
            take_in(job)


def _could_start(state: State, worker: Worker) -> bool:
    """True if some job has a task to start that fits the worker now."""
    keys = state.index.requirements.served_in(state.index.slots.free_slots(worker), worker.name)
    return not state.index.ready.keys().isdisjoint(keys)


def _move(state: State, attempt: Attempt, worker: Worker) -> bool:
    """Retract the attempt and start its task on the idle worker. Return True if it was started there.

    The attempt may have begun since its worker's last Report. If its task must not run once more in that case, it is
    queued until the worker says that the attempt is gone.
    """
    job, task, reason = state.jobs[attempt.job], attempt.task_id, f"worker {worker.name} could begin it earlier"
    if not state.tasks[task].may_be_tried(job, state.index.attempts.running_or_may_be(task)):
        lifecycle.retract_attempt(state, attempt, reason)
        return False
    lifecycle.cancel_attempt(state, attempt, reason)
    lifecycle.start_attempt(state, job, attempt.task, worker)
    return True


def _worth_moving(state: State, prefetch: Prefetch, worker: Worker) -> Attempt | Later | None:
    """Return the attempt that would begin last of those that this idle worker would finish clearly earlier.

    Later if there will be one, because what runs before it is late by then.
    """
    due_at = inf
    for wait_ms, name in state.index.slots.backlog.order[:_LOOK_AT]:
        donor, queue = state.workers[name], state.index.attempts.queues.of_worker[name]
        last = state.attempts[state.index.attempts.queues.latest_on(name)]
        job = state.jobs[last.job]
        if not eligibility.fits(state, job, worker) or state.index.on_worker(last.task_id, worker.name):
            continue
        if not eligibility.ends_in_time(state, job, last.task, worker, state.now):
            continue
        if eligibility.should_go_elsewhere(state, job, last.task, worker):
            continue
        behind_s = (-wait_ms - queue[last.id] / max(1, donor.offered)) / 1e3 + last.expected_s
        longer_s = prefetch.expected_s(job, last.task, worker) + _CLEARLY_S - behind_s
        longer_s += measure.delay_of(worker) - measure.delay_of(donor)
        if state.data.is_known:  # its data may be there
            here, there = (state.data.delay(job, last.task, name) for name in (worker.name, donor.name))
            longer_s += max(0.0, here - there)
        better_at = _busy_for(state, donor, longer_s)
        if better_at <= state.now + _CLOSELY_S:
            return last
        due_at = min(due_at, better_at)
    return Later(due_at) if due_at < inf else None


def _busy_for(state: State, worker: Worker, seconds: float) -> float:
    """Return the time from which no slot of the worker is expected to fall free for so long; now, if that is so."""
    seated = [(state.jobs[attempt.job], attempt) for attempt in state.index.attempts.seated_on(worker.name)]
    left = min((measure.left_of(state.grid, job, worker, attempt) for job, attempt in seated), default=0.0)
    if left > seconds:
        return state.now
    return max((measure.late_from(state.grid, job, worker, attempt, seconds) for job, attempt in seated), default=inf)
