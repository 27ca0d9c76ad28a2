"""LeastWork: a quick test whether any task may be short enough to wait at a busy worker.

If jobs of many different requirements are too long to wait anywhere, which is usual, only jobs for free workers have
to be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.index.sorted_collections import LongRanking
from loopline_master.core.policies.policy import View

_FEW = 4
"""Jobs that are checked before all are ranked."""


class LeastWork:
    """Live jobs by a lower bound of the work of their tasks; jobs of unknown work are left out, as they wait nowhere.

    They are ranked at the first call, and updated from then on.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._ranking: LongRanking[int, tuple[float, int]] | None = None

    def note(self, jobs: Mapping[int, Job]) -> None:
        """Update the jobs that a step has changed."""
        if self._ranking is not None:
            for job in jobs.values():
                self._place(job, self._ranking)

    def is_at_most(self, work: float) -> bool:
        """True if some job with a task to start may have a task of at most this work."""
        index = self._view.index
        for members in islice(index.ready.values(), _FEW):
            if (first := index.live.get(members.starts[0])) is None:
                continue  # the turn of a session, whose first job is over
            least = self._least(first)
            if least is not None and least <= work:
                return True  # the usual case if there is one
        if self._ranking is None:
            self._ranking = LongRanking()
            for job in index.live.values():
                self._place(job, self._ranking)
        for least, arrival in self._ranking.order:
            if least > work:
                return False
            found = index.live.get(arrival)
            if found is not None and index.is_ready(found):
                return True
        return False

    def _place(self, job: Job, ranking: LongRanking[int, tuple[float, int]]) -> None:
        least = self._least(job) if job.is_live else None
        ranking.place(job.id, None if least is None else (least, job.arrival))

    def _least(self, job: Job) -> float | None:
        """Return a lower bound of the work of the job's tasks; None if unknown."""
        if not job.sweep.is_sized:  # all tasks are alike
            return measure.work_of(self._view.grid, job, 1) if measure.is_known(job, 1) else None
        return job.sweep.least * measure.unit_of(job)
