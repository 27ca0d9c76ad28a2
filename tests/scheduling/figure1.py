"""The no-passing paper's Figure 1, transcribed: an oracle with real queues, which knows nothing of Loopline.

    for each job Ji: make its queue of tasks Qi
    while tasks are left:
        if no processor is idle:
            wait until one is; let Ti,j be the task that it has completed
            kill the other instances of Ti,j; remove Ti,j from Qi; if Qi is empty, remove Qi
        choose one of Q1 ... Qm in round-robin order; take its head Ti,j; put Ti,j at the tail of Qi
        if Ji has one never-assigned task left and Ji is equal to or greater than any predecessor: do nothing
        else: assign an instance of Ti,j to the idle processor

By the paper's text only "the assignment of T", the last never-assigned task, is held; by the figure nothing would be
assigned at Ji's turn, even if another task is at its head. Queues are kept in an array in the order of submission; a
new one is appended, and the pointer moves on. Where instances of one task are limited (which the paper does not
do), a task at its limit is passed over as if it were not in its queue, and so is a queue with nothing to assign.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass
class Queue:
    job: int
    size: float
    tasks: deque[int]
    predecessors: set[int]  # in the grid at its submission, and not larger
    never_assigned: set[int]
    instances: dict[int, set[str]] = field(default_factory=dict)  # by task: processors


class Figure1:
    def __init__(self, limit: int | None) -> None:
        self.queues: list[Queue] = []
        self.turn = -1  # place in the array of the queue chosen last
        self.limit = limit

    def submit(self, job: int, size: float, tasks: int) -> None:
        predecessors = {queue.job for queue in self.queues if queue.size <= size}
        numbers = range(1, tasks + 1)
        self.queues.append(Queue(job, size, deque(numbers), predecessors, set(numbers)))

    def complete(self, job: int, task: int) -> None:
        """All instances of the task are killed."""
        place = next(place for place, queue in enumerate(self.queues) if queue.job == job)
        queue = self.queues[place]
        queue.tasks.remove(task)
        del queue.instances[task]
        if not queue.tasks:
            del self.queues[place]
            self.turn -= place <= self.turn

    def drop_instance(self, job: int, task: int, processor: str) -> None:
        """Remove a failed or lost instance, which the paper does not have: its task keeps its place in the queue."""
        next(queue for queue in self.queues if queue.job == job).instances[task].remove(processor)

    def assign(self, processor: str) -> tuple[int, int] | None:
        """Return (job, task) for the idle processor; None: it has to wait."""
        while any(self._may_be_assigned(queue) for queue in self.queues):
            self.turn = (self.turn + 1) % len(self.queues)
            queue = self.queues[self.turn]
            if not self._may_be_assigned(queue):
                continue
            while self._is_full(queue, queue.tasks[0]):
                queue.tasks.rotate(-1)
            task = queue.tasks[0]
            queue.tasks.rotate(-1)
            if not self._is_held(queue, task):
                queue.never_assigned.discard(task)
                queue.instances.setdefault(task, set()).add(processor)
                return queue.job, task
        return None

    def _may_be_assigned(self, queue: Queue) -> bool:
        return any(not self._is_held(queue, task) and not self._is_full(queue, task) for task in queue.tasks)

    def _is_held(self, queue: Queue, task: int) -> bool:
        present = {other.job for other in self.queues}
        return queue.never_assigned == {task} and bool(queue.predecessors & present)

    def _is_full(self, queue: Queue, task: int) -> bool:
        return self.limit is not None and len(queue.instances.get(task, ())) >= self.limit
