"""The wing *fencing*: a silent worker ends its fenced attempts, so that others may take their places.

Fenced are attempts that hold units of a limit, and those of jobs whose tasks must not run twice at a time
(``Job.never_twice``). Each has a term, one lease. Its worker's supervisor ends it when the master has not answered a
Report for a term (worker, attempts/fence.py), counted from the sending of that Report. The master counts from its
arrival, adds a margin, and then gives the attempt up. If the worker returns earlier, the attempt is cancelled.

A database that returned to an earlier state does not know the attempts that began since then. Until silent workers
have ended those, no unit is given (wings/resources), and no task starts that must not run twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopline_master.core.events import MasterStarted
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.door.mechanism import Handler, Purpose, Tell, Veto
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.entities import Attempt, Job, Worker
from loopline_master.core.kernel.index.attempts import may_be_running
from loopline_master.core.kernel.sessions.leases import ended_after_s
from loopline_master.core.kernel.state import State
from loopline_master.core.kernel.stored_rows import Rows
from loopline_shared.model import AttemptId, AttemptState
from loopline_shared.protocol.worker_link import Assign


class Fencing(Wing):
    """Awake while a job in memory may have fenced attempts."""

    concerns = ("needs", "never_twice")

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._jobs: dict[int, None] = {}  # may have fenced attempts; some of them may have left memory
        self._lost: set[AttemptId] = set()  # fenced attempts of silent workers

    @property
    def is_awake(self) -> bool:
        return bool(self._jobs)

    def restore(self, rows: Rows) -> None:
        self._jobs = {job.id: None for job in self.state.jobs.values() if job.needs or job.never_twice}
        roles = self.state.index.attempts.roles
        self._lost = {one.id for one in self.state.attempts.values() if _is_lost_and_fenced(one, roles[one.id])}

    def handlers(self) -> Mapping[type, Handler]:
        return {MasterStarted: self._begin}

    def _begin(self, event: MasterStarted, tell: Tell) -> None:
        """Withhold guarded starts for a term and a margin after the first start of another life.

        Until this start, workers may have been answered by the master of the life before.
        """
        grid = self.state.grid
        if grid.units_withheld_until is None:
            terms = (attempt.term_s or 0.0 for attempt in self.state.attempts.values())
            grid.units_withheld_until = grid.now + ended_after_s(max([self.state.settings.lease_s, *terms]))

    def enters(self, job: Job) -> None:
        self._jobs[job.id] = None
        self.state.wings.arrange()

    def finish_step(self) -> None:
        """Forget jobs that have left memory, and fall asleep without any.

        If the first one stays, the others are removed when ``_jobs`` has over twice the length of ``state.jobs``.
        """
        while self._jobs and (first := next(iter(self._jobs))) not in self.state.jobs:
            del self._jobs[first]
        if len(self._jobs) > 2 * len(self.state.jobs):
            self._jobs = {number: None for number in self._jobs if number in self.state.jobs}
        if not self._jobs:
            self.state.wings.arrange()

    def role_changes(self, attempt: Attempt, before: int, after: int) -> None:
        """Give a new attempt its term, and note whether it is lost."""
        if not before and self._is_fenced(self.state.jobs[attempt.job], self.state.workers[attempt.worker]):
            attempt.term_s = self.state.settings.lease_s
        (self._lost.add if _is_lost_and_fenced(attempt, after) else self._lost.discard)(attempt.id)

    def _is_fenced(self, job: Job, worker: Worker) -> bool:
        """True if the worker must end a new attempt of the job once the master falls silent."""
        limits = self.state.index.requirements.units.limits
        return worker.facts.fences and (job.never_twice or any(name in limits for name, _ in job.needs))

    def assign(self, worker: Worker, assign: Assign) -> None:
        """Give fenced attempts their terms."""
        for run in assign.run:
            run.term_s = self.state.attempts[run.attempt].term_s

    def veto(self, job: Job, task: int, worker: Worker, purpose: Purpose) -> Veto | None:
        """Object to a task that must not run twice while an unknown attempt may be running."""
        withheld_until = self.state.grid.units_withheld_until
        if job.never_twice and (withheld_until is None or withheld_until > self.state.now):
            return Veto("restored")
        return None

    def needs(self, worker: Worker) -> bool:
        """True if the worker has yet to end an attempt."""
        roles = self.state.index.attempts.roles
        here = self.state.index.attempts.of_worker.get(worker.name, {}).values()
        return any(one.term_s is not None and may_be_running(roles[one.id]) for one in here)

    def due_at(self) -> float | None:
        times = [self._ends_at(number) for number in self._lost]
        withheld_until = self.state.grid.units_withheld_until
        if withheld_until is not None and withheld_until > self.state.now:
            times.append(withheld_until)
        return min(times, default=None)

    def expire(self) -> None:
        """Give up the lost attempts that their silent workers have ended by now."""
        for number in sorted(self._lost):
            if self._ends_at(number) <= self.state.now:
                reason = "its worker fell silent, and has ended it"
                lifecycle.lose(self.state, self.state.attempts[number], reason, for_good=True)

    def _ends_at(self, number: AttemptId) -> float:
        """Return when its worker has ended the attempt at the latest; the lease was another if a master set it so."""
        attempt, lease_s = self.state.attempts[number], self.state.settings.lease_s
        term_s = max(attempt.term_s or 0.0, lease_s)
        return self.state.workers[attempt.worker].lease_until - lease_s + ended_after_s(term_s)


def _is_lost_and_fenced(attempt: Attempt, role: int) -> bool:
    return attempt.term_s is not None and attempt.state is AttemptState.LOST and may_be_running(role)
