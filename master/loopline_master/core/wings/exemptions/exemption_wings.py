"""The wing *exemptions*: stalled or overdrawn jobs hold no other job, and each such period is noted.

Stalled jobs are marked first, because only jobs that hold others can be overdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.entities import Attempt, Job, Task, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.exemptions import overdrawn
from loopline_master.core.wings.exemptions.exemption import Evidence, renew
from loopline_shared.model import AttemptState


class StallExemptions(Wing):
    """Marks jobs as stalled if no worker could run them for too long, and notes all exemptions."""

    def due_at(self) -> float | None:
        order = self.state.index.starving.order
        return order[0][0] + self.state.settings.stall_after_s if order else None

    def expire(self) -> None:
        state = self.state
        starved_s = state.settings.stall_after_s
        for _, number in takewhile(lambda one: one[0] + starved_s <= state.now, state.index.starving.order):
            job = state.jobs[number]
            job.stalled = True
            state.put(job)

    def exemption_changes(self, job: Job, before: str, reason: str) -> None:
        for row in renew(job, before, reason, self.state.now):
            self.state.effects.tell(row)
        if reason:
            self.state.effects.tell(self._evidence(job, reason))

    def _evidence(self, job: Job, reason: str) -> Evidence:
        since, settings = self.state.now, self.state.settings
        found = Evidence(job.id, since, reason, job.size)
        if reason == "overdrawn":
            return replace(found, limit=settings.overdrawn_after, used=job.counted, attempts=job.proof)
        if reason == "stalled":
            idle_s, budget_s = job.idle_s, settings.idle_budget_s
            return replace(found, starved_since=job.starved_since, idle_s=idle_s, budget_s=budget_s)
        return found


class OverdrawnExemptions(Wing):
    """Marks jobs as overdrawn that hold others and have used many times their size."""

    def due_at(self) -> float | None:
        state = self.state
        return overdrawn.next_check_at(state) if state.index.blocked and state.settings.overdrawn_after else None

    def expire(self) -> None:
        if overdrawn.is_due(self.state, self.state.now):
            marked = [*overdrawn.mark_overdrawn(self.state)]
            for wing in self.state.wings.all if marked else ():
                if isinstance(wing, Proofs):
                    wing.note(*marked)

    def settings_change(self) -> None:
        """Judge the proofs by the limit that is now in force."""
        for job in [*self.state.index.live.values()]:
            if job.overdrawn and overdrawn.clear_unless_proven(self.state, job):
                self.state.put(job)

    def workers_to_hear(self, now: float) -> Iterable[str]:
        """Return the workers whose last Reports decide how much work the next check counts."""
        return overdrawn.workers_of_holders(self.state) if overdrawn.is_due(self.state, now) else ()


class Proofs(Wing):
    """Lets overdrawn jobs hold others again once results show less work than was measured before.

    Awake if a live job is overdrawn.
    """

    concerns = ("overdrawn",)  # a retried job

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._jobs = {job.id for job in state.jobs.values() if job.is_live and job.overdrawn}

    @property
    def is_awake(self) -> bool:
        return bool(self._jobs)

    def note(self, *jobs: Job) -> None:
        """Note jobs that have become overdrawn."""
        self._jobs.update(job.id for job in jobs)
        self.state.wings.arrange()

    def enters(self, job: Job) -> None:
        self.note(job)

    def exemption_changes(self, job: Job, before: str, reason: str) -> None:
        if job.id in self._jobs and not (job.is_live and job.overdrawn):
            self._jobs.remove(job.id)
            self.state.wings.arrange()

    def attempt_ended(
        self, job: Job, task: Task, attempt: Attempt, took_down: bool, is_slow: bool
    ) -> Iterable[Worker]:
        if job.proof and (attempt.accepted or attempt.state is AttemptState.FAILED):
            overdrawn.reconsider(self.state, job, attempt)
        return ()

    def check(self, of: Job | Worker | None) -> None:
        """Raise AssertionError if a job is overdrawn without a proof."""
        for job in self.state.jobs.values() if of is None else ():
            if job.is_live and job.overdrawn:
                assert job.id in self._jobs, f"job {job.id} is overdrawn, and its results are not noted"
                assert overdrawn.proves(self.state, job, job.proof), f"job {job.id} is overdrawn without a proof"
