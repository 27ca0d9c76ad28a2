"""Carries out a policy: draws its proposals, checks each, and starts or prefetches what is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf

from loopline_master.core import lifecycle
from loopline_master.core.entities import Job, Worker
from loopline_master.core.placement import eligibility, retract
from loopline_master.core.policies.first_come import FirstCome
from loopline_master.core.policies.policy import Later, Placement, Policy, Proposal
from loopline_master.core.policies.view import View
from loopline_master.core.state import State

_MOST_PREFETCHED = 1024
"""In one step: nobody is to wait for its end while the queues of a thousand workers are filled."""
_LONGEST_WAIT_S = 3600.0
"""A policy that waits is asked again after so long, whatever it answered."""


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
        self.wake_at = None
        yield from self._relieve(unless_ready=True)
        yield from self._start_on_free(policy.plan(self._view))
        yield from self._relieve(unless_ready=False)
        if policy.prefetches and self._state.ahead_s > 0:
            yield from self._prefetch(policy.prefetch(self._view))
        attempts = self._state.index.attempts
        if self.wake_at is None and not (attempts.used or attempts.queues.of_worker):
            self._keep_going()
            yield

    def accept(self, placement: Placement) -> bool:
        """Carry out a proposal if it may be; True if it led to an attempt."""
        state = self._state
        job, worker = state.jobs.get(placement.job), state.workers.get(placement.worker)
        if job is None or worker is None:
            return False
        if worker.name in state.index.slots.idle.keys:
            return self._start(job, placement.task, worker)
        return self._send_ahead(job, placement.task, worker)

    def _start_on_free(self, proposals: Iterator[Proposal]) -> Iterator[None]:
        """Accept proposals until they end, or too many in a row were in vain for a grid of this size."""
        index = self._state.index
        patience = most = 2 * (len(index.live) + len(index.slots.idle.order)) + 10
        for proposal in proposals:
            if not isinstance(proposal, Placement):
                accepted = self._note(proposal)
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
        """Accept what may wait. Proposals end by themselves where nothing more may; the next step goes on."""
        for proposal in islice(proposals, _MOST_PREFETCHED):
            if isinstance(proposal, Placement):
                self.accept(proposal)
                yield
            else:
                self._note(proposal)

    def _keep_going(self) -> None:
        """Start one task in a grid that the policy left all idle."""
        for proposal in self._fallback.plan(self._view):
            if isinstance(proposal, Placement) and self.accept(proposal):
                return

    def _note(self, later: Later) -> bool:
        """Remember when to ask again, in an hour at the latest. A time that is over counts as no answer."""
        now = self._state.now
        if later.at > now:
            self.wake_at = min(later.at, now + _LONGEST_WAIT_S, self.wake_at or inf)
        return False

    def _relieve(self, *, unless_ready: bool) -> Iterator[None]:
        if self._state.index.attempts.queues.of_worker and self._state.index.slots.idle.order:
            yield from retract.relieve(self._state, self._view.prefetch, unless_ready=unless_ready)

    def _start(self, job: Job, task: int, worker: Worker) -> bool:
        """Start the task on a free worker, if it may; a held task spends its job's turn all the same."""
        state = self._state
        if not eligibility.may_start(state, job, task, worker):
            return False
        is_fresh = task in state.fresh[job.id]
        is_held = is_fresh and state.index.is_held(job)
        job.cursor, state.grid.pointer = task, job.arrival
        if is_held:
            state.put(job)
        else:
            if not is_fresh:
                lifecycle.retract_task(state, job.task_id(task), f"worker {worker.name} could begin it at once")
            lifecycle.start_attempt(state, job, task, worker)
        return not is_held

    def _send_ahead(self, job: Job, task: int, worker: Worker) -> bool:
        """Have the task wait at a busy worker for a slot, if it may."""
        if not job.is_live or job.paused or not self._view.prefetch.may_wait(job, task, worker):
            return False
        job.cursor, self._state.grid.pointer = task, job.arrival
        lifecycle.start_attempt(self._state, job, task, worker, ahead=True)
        return True
