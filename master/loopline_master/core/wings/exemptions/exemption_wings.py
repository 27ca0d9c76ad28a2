"""The wing *exemptions*: stalled or overdrawn jobs hold no other job, and each such period is noted.

It has two mechanisms: stalled jobs are marked first, because only jobs that hold others can be overdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.entities import Job
from loopline_master.core.wings.exemptions import overdrawn
from loopline_master.core.wings.exemptions.exemption import renew


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


class OverdrawnExemptions(Wing):
    """Marks jobs as overdrawn that hold others and have used many times their size."""

    def due_at(self) -> float | None:
        state = self.state
        return overdrawn.next_check_at(state) if state.index.blocked and state.settings.overdrawn_after else None

    def expire(self) -> None:
        overdrawn.mark_overdrawn(self.state)

    def workers_to_hear(self, now: float) -> Iterable[str]:
        """Return the workers whose last Reports decide how much work the next check counts."""
        return overdrawn.workers_of_holders(self.state) if overdrawn.is_due(self.state, now) else ()
