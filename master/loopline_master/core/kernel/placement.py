"""Placement: draws a policy's proposals, checks each, and starts or prefetches the accepted ones.

Before that, it retracts prefetched attempts that an idle worker would finish earlier than the worker where they
wait. They have not begun, so no work is lost.
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
from loopline_master.core.policies.policy import Later, Placement, Policy, Proposal, View

_MOST_PREFETCHED = 1024
"""Limit for one step: its end must not wait until the queues of a thousand workers are filled."""
_LONGEST_WAIT_S = 3600.0
"""A policy that answered Later is asked again after this time at the latest."""

_CLEARLY_S = 0.05
"""A move costs a frame to each of two workers: it must bring the end forward by at least this."""
_CLOSELY_S = 1e-6
"""Times that differ by less count as equal."""
_LOOK_AT = 4
"""For each idle worker, the longest queues of this many workers are checked ..."""
_OFFER_TO = 8
"""... for at most this many idle workers in a step."""


class Placer:
    """Asks the policy in force; ``wake_at`` is the earliest time of its Later answers, if any."""

    def __init__(self, state: State, view: View) -> None:
        self.wake_at: float | None = None
        self._state, self._view = state, view
        self._fallback = FirstCome(view)

    def place(self, policy: Policy) -> Iterator[None]:
        """Place the policy's proposals, as far as they are allowed: on free workers, then at busy ones.

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
        """Start or prefetch a task as proposed, if allowed; True if an attempt was made.

        A placement that the hold or some vetoes refuse still spends its job's turn. If the View has just accepted
        this placement for the policy, that answer is reused: nothing has changed since.
        """
        state, name, task = self._state, placement.worker, placement.task
        answered, state.accepted = state.accepted, None
        job, worker = state.jobs.get(placement.job), state.workers.get(name)
        if job is None or worker is None:
            return False
        if answered != (placement.job, task, name):
            may_be = self._view.accepts(job, task, worker)
            state.accepted = None  # an answer is used once
            if not may_be:
                return False
        is_free = name in state.index.slots.idle.keys
        purpose = Purpose.START if is_free else Purpose.PREFETCH
        veto = state.wings.veto(job, task, worker, purpose) if state.wings.vetoes else None
        if veto is not None and not (is_free and veto.spends_turn):
            return False
        self._spend_turn(job, placement)
        is_fresh = task in state.fresh[job.id]
        if veto is not None or (is_free and is_fresh and state.index.is_held(job)):
            state.put(job)
            return False
        if is_free and not is_fresh:
            lifecycle.retract_task(state, job.task_id(task), f"worker {worker.name} could begin it at once")
        lifecycle.start_attempt(state, job, task, worker, ahead=not is_free)
        return True

    def _spend_turn(self, job: Job, placement: Placement) -> None:
        if not placement.keeps_place:
            job.cursor = placement.task
        self._state.grid.pointer = job.turn
        for take_in in self._state.wings.turn_passes:
            take_in(job)

    def _start_on_free(self, proposals: Iterator[Proposal]) -> Iterator[None]:
        """Accept proposals until they end, or too many in a row were refused for a grid of this size."""
        index = self._state.index
        patience = most = 2 * (len(index.live) + len(index.slots.idle.order)) + 10
        for proposal in proposals:
            if isinstance(proposal, Later):
                self._note(proposal)
                accepted = False
            else:
                for turn in proposal.spent:
                    self.accept(turn)
                    yield
                accepted = self.accept(proposal)
                yield
            patience = most if accepted else patience - 1
            if patience < 0:
                break

    def _prefetch(self, proposals: Iterator[Proposal]) -> Iterator[None]:
        """Accept prefetches. Proposals end when no more may wait; the next step continues."""
        for proposal in islice(proposals, _MOST_PREFETCHED):
            if isinstance(proposal, Later):
                self._note(proposal)
            else:
                self.accept(proposal)
                yield

    def _keep_going(self) -> None:
        """Start one task if the policy left the whole grid idle."""
        for proposal in self._fallback.plan(self._view):
            if isinstance(proposal, Placement) and self.accept(proposal):
                return

    def _note(self, later: Later) -> None:
        """Remember when to ask again, in an hour at the latest. A time in the past counts as no answer."""
        now = self._state.now
        if later.at > now:
            self.wake_at = min(later.at, now + _LONGEST_WAIT_S, self.wake_at or inf)

    def _relieve(self, *, unless_ready: bool) -> Iterator[None]:
        """Move attempts that wait at busy workers to idle ones, before replicas are made.

        Yields after each move: the index must be flushed before the next.

        ``unless_ready``: leave out workers that could start something else, because that choice is the policy's.
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


def _could_start(state: State, worker: Worker) -> bool:
    """True if some job has a task to start that fits the worker now."""
    keys = state.index.requirements.served_in(state.index.slots.free_slots(worker), worker.name)
    return not state.index.ready.keys().isdisjoint(keys)


def _move(state: State, attempt: Attempt, worker: Worker) -> bool:
    """Retract the attempt and start its task on the idle worker. Return True if it was started there.

    The attempt may have begun since its worker's last Report. If its task must not run a second time in that case, it
    is queued until the worker reports the attempt gone.
    """
    job, task, reason = state.jobs[attempt.job], attempt.task_id, f"worker {worker.name} could begin it earlier"
    may_be = state.index.attempts.running_or_may_be(task)
    if job.never_twice or not state.tasks[task].may_be_tried(job, may_be):
        lifecycle.retract_attempt(state, attempt, reason)
        return False
    lifecycle.cancel_attempt(state, attempt, reason)
    lifecycle.start_attempt(state, job, attempt.task, worker)
    return True


def _worth_moving(state: State, prefetch: Prefetch, worker: Worker) -> Attempt | Later | None:
    """Return the last attempt of a long queue that this idle worker would clearly finish earlier.

    Later if there will be one, once the work ahead of it is overdue.
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
    """Return the first time from which all its slots are expected to stay busy for ``seconds``; now if they are."""
    seated = [(state.jobs[attempt.job], attempt) for attempt in state.index.attempts.seated_on(worker.name)]
    left = min((measure.left_of(state.grid, job, worker, attempt) for job, attempt in seated), default=0.0)
    if left > seconds:
        return state.now
    return max((measure.late_from(state.grid, job, worker, attempt, seconds) for job, attempt in seated), default=inf)
