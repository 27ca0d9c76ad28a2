"""The second kind of policy: the next task asks for a worker, and takes the one of least cost."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from loopline_master.core.entities import Job, Worker
from loopline_master.core.estimates import measure
from loopline_master.core.index.requirements import RequirementClass
from loopline_master.core.policies.policy import Later, Placement, Policy, Proposal
from loopline_master.core.policies.view import View, first_of
from loopline_master.core.policies.worker_index import Candidate, Ranked, ReadyTask, WorkerIndex

_MOST_IN_VAIN = 16
"""After so many jobs of one requirement class in vain, the others of that class are not asked."""
_MOST_PROPOSALS = 512
"""In one step: workers for which so many are accepted will report again soon."""


class TaskFirst(Policy):
    """Tasks are placed in the order in which their jobs arrived; ``cost`` chooses the worker."""

    least_share = 1.0
    """``speed`` is at least this share of the measured speed."""
    draws = True
    """Among workers of equal rank and cost one is drawn at random; otherwise the first by name is taken."""

    index: WorkerIndex

    def __init__(self, view: View) -> None:
        self.index = WorkerIndex(view, self)

    @abstractmethod
    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float | Later:
        """Return the cost of the task on this worker, the best of its class; the least of all classes wins.

        A busy candidate stands for waiting there. Later keeps the task from this candidate until then. Any finite
        unit will do; a cost in seconds can add what is still to come, such as the transfer of inputs.
        """

    def rank(self, view: View, worker: Worker) -> float:
        """Return the worker's place in its class, least first: all of its cost that does not depend on the task.

        It may depend on the worker's own state alone, not on the time: it is computed when the worker changes.
        """
        return 0.0

    def speed(self, view: View, worker: Worker) -> float:
        """Return the reference CPU-seconds a second of one slot; all workers of a class count as equally fast."""
        return measure.speed_of(view.grid, worker)

    def places(self, view: View, ranked: Ranked, *, busy: bool) -> Sequence[int]:
        """Return the places in a ranked list at which the best may stand; the first, unless ranks say otherwise."""
        return (0,)

    def plan(self, view: View) -> Iterator[Proposal]:
        """Propose a worker for one task after the other, until nobody can take more."""
        in_vain: dict[RequirementClass, int] = {}
        arrival, left, index = 0, _MOST_PROPOSALS, self.index
        while left and index.classes and (job := _next_job(view, arrival, in_vain)) is not None:
            answer = index.best(job)
            if answer is not None:
                left -= 1
                yield answer
            if not isinstance(answer, Placement) or not _is_placed(view, job, answer):
                key = view.index.requirements.key_of(job)
                in_vain[key], arrival = in_vain.get(key, 0) + 1, job.arrival

    def prefetch(self, view: View) -> Iterator[Proposal]:
        """Return nothing: busy workers stand beside free ones in ``plan``, each at its cost."""
        return iter(())


def _next_job(view: View, after: int, in_vain: dict[RequirementClass, int]) -> Job | None:
    """Return the first job after that arrival with a task to start, of a class that is still worth asking."""
    ready = view.index.ready
    arrival = first_of([ready[key] for key in ready if in_vain.get(key, 0) < _MOST_IN_VAIN])(after)
    return None if arrival is None else view.index.live[arrival]


def _is_placed(view: View, job: Job, placement: Placement) -> bool:
    return view.index.on_worker(job.task_id(placement.task), placement.worker)
