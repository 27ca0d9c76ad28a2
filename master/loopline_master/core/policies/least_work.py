"""LeastWork: whether any task may be short enough to wait at a busy worker, told without asking each job.

Where jobs of many different requirements are too long to wait anywhere, as most are, only those have to be asked that
a free worker serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.index.sorted_collections import LongRanking
from loopline_master.core.policies.policy import View

_FEW = 4
"""So many jobs are looked at before all are ranked."""


class LeastWork:
    """Live jobs by the work below which none of their tasks is, as far as it is known: others wait nowhere.

    They are ranked at the first question, and from then on as they change.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._ranking: LongRanking[int, tuple[float, int]] | None = None

    def note(self, jobs: Mapping[int, Job]) -> None:
        """Take in the jobs that a step has changed."""
        if self._ranking is not None:
            for job in jobs.values():
                self._place(job, self._ranking)

    def is_at_most(self, work: float) -> bool:
        """True if some job with a task to start may have a task of so much work or less."""
        index = self._view.index
        for members in islice(index.ready.values(), _FEW):
            if (first := index.live.get(members.starts[0])) is None:
                continue  # the turn of a session, whose first job is over
            least = self._least(first)
            if least is not None and least <= work:
                return True  # as most often, if any is
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
        """Return work that each of the job's tasks has at least; None if nothing is known of any."""
        if not job.sweep.is_sized:  # all are alike
            return measure.work_of(self._view.grid, job, 1) if measure.is_known(job, 1) else None
        return job.sweep.least * measure.unit_of(job)
