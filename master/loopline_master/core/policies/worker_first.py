"""The first kind of policy: a free worker asks for a task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from loopline_master.core.entities import Worker
from loopline_master.core.policies.policy import Policy, Proposal
from loopline_master.core.policies.view import View


class WorkerFirst(Policy):
    """Workers ask one after the other; a worker asks again until it is given nothing."""

    @abstractmethod
    def next_task(self, view: View, worker: Worker) -> Proposal | None:
        """Return the placement that this worker should have next, Later, or None for nothing.

        The scheduler also asks for busy workers (``view.is_free`` tells): what is proposed then waits there. A policy
        should propose the very task that the worker would be given next. If that one may not wait, nothing does:
        shorter tasks that passed it would keep every slot from falling free for it.
        """

    def free_workers(self, view: View) -> Iterator[Worker]:
        """Return free workers in the order in which they ask, once a step: here most free slots first.

        It ends when there is nothing to start (or to replicate). A worker for which nothing was accepted is not
        offered again.
        """
        idle, requirements, passed_over = view.index.slots.idle, view.index.requirements, None
        wanted = view.index.open if self.replicates else view.index.ready
        while (entry := idle.next_after(passed_over)) is not None:
            changes = idle.changes
            if not wanted.keys().isdisjoint(requirements.served_by(entry[-1])):
                yield view.workers[entry[-1]]
            elif not any(requirements.workers[key] for key in wanted):
                return  # nobody could run any of it
            if changes == idle.changes:
                passed_over = entry

    def plan(self, view: View) -> Iterator[Proposal]:
        """Ask for every free worker."""
        for worker in self.free_workers(view):
            answer = self.next_task(view, worker)
            if answer is not None:
                yield answer

    def prefetch(self, view: View) -> Iterator[Proposal]:
        """Ask for every busy worker that may have one more task prefetched."""
        for worker in view.prefetch.workers_with_room():
            answer = self.next_task(view, worker)
            if answer is not None:
                yield answer
