"""Exemptions: periods in which a job held no other job. Each is one row, whichever jobs passed it."""

from __future__ import annotations

from dataclasses import dataclass

from loopline_master.core.kernel.entities import Job


@dataclass(frozen=True, slots=True)
class Exemption:
    """A period in which later jobs could be released that otherwise had to wait for this job, with the reason."""

    job: int
    since: float
    reason: str  # paused, stalled, overdrawn
    until: float | None = None  # None: it has not ended

    def covers(self, later: Job) -> bool:
        """True if a later job was released within it, both ends included, as one step may do several things."""
        at = later.released_at
        return at is not None and self.since <= at and (self.until is None or at <= self.until)


def renew(job: Job, before: str, reason: str, now: float) -> list[Exemption]:
    """End the exemption that a job had for the reason ``before``, and begin one for its present reason.

    Either reason may be empty. Return the rows to be stored.
    """
    ended = [Exemption(job.id, job.exempt_since, before, now)] if before and job.exempt_since is not None else []
    job.exempt_since = now if reason else None
    return [*ended, Exemption(job.id, now, reason)] if reason else ended
