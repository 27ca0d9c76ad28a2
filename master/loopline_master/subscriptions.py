"""Results on their way to whoever follows a job: sent from what was just committed, and read from disk where that is
not known.

A feed is *live* when all that came before has been sent: then each commit's results go out as they are, in the order
of their cursors, without a look at the database. Else it is *behind* (it has only begun, its reader is slow, or a
result is not whole in what was committed), and is read on from its cursor until nothing has come meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from loopline_master.core.effects import Effects
from loopline_master.core.entities import Attempt, Job, Task
from loopline_master.core.state import State
from loopline_shared.model import AttemptId, JobState, TaskState

End = TypeVar("End")

FINISHED = (TaskState.SUCCEEDED, TaskState.FAILED)
PART = 500
"""Results that are sent in one piece, or read from disk at once."""
Cursor = tuple[float, int]
"""When the last task that was told of finished, and its number."""


@dataclass(eq=False, slots=True)
class Feed(Generic[End]):
    """One job's, to one reader.

    ``put`` takes what is to be sent, and says whether there is room for more; with a state, nothing follows: so the
    job has ended. ``end_of`` makes what is sent of a task that has finished, by the attempt that tells of it; None:
    it is not known whole. ``on_behind`` hears that the rest is to be read.
    """

    job: int
    put: Callable[[Feed[End], list[End], JobState | None], bool]
    on_behind: Callable[[Feed[End]], None]
    end_of: Callable[[Job | None, Task, Attempt], End | None]
    cursor: Cursor = (0.0, 0)
    is_live: bool = False
    is_stirred: bool = False  # something came since it was last read

    def fall_behind(self) -> None:
        self.is_stirred = True
        if self.is_live:
            self.is_live = False
            self.on_behind(self)

    def send(self, ends: list[End], at: Cursor, over: JobState | None = None) -> bool:
        """These go on after its cursor, and it goes on after ``at``; ``over``: they are the last."""
        self.cursor = at
        return self.put(self, ends, over)


AnyFeed = Feed[Any]


class Feeds:
    """All of them, by job. It listens to the engine's news."""

    def __init__(self) -> None:
        self._of_job: dict[int, list[AnyFeed]] = {}

    def open(self, feed: AnyFeed) -> None:
        self._of_job.setdefault(feed.job, []).append(feed)

    def close(self, feed: AnyFeed) -> None:
        feeds = self._of_job.get(feed.job, [])
        if feed in feeds:
            feeds.remove(feed)
        if not feeds:
            self._of_job.pop(feed.job, None)

    def add(self, effects: Effects) -> None:
        """These are on disk."""
        if not self._of_job:
            return
        finished: dict[int, list[Task]] = {}
        for task in effects.tasks.values():
            if task.job in self._of_job and task.finished_at == effects.grid.now and task.state in FINISHED:
                finished.setdefault(task.job, []).append(task)
        over = {job.id: job.state for job in effects.jobs.values() if job.is_over and job.id in self._of_job}
        for number, tasks in finished.items():
            self._tell(number, sorted(tasks, key=lambda task: task.number), effects, over.pop(number, None))
        for number, state in over.items():
            for feed in tuple(self._of_job[number]):
                if feed.is_live:
                    feed.put(feed, [], state)
                else:
                    feed.fall_behind()

    def _tell(self, number: int, tasks: list[Task], effects: Effects, over: JobState | None) -> None:
        job, now = effects.jobs.get(number), effects.grid.now
        attempts = [effects.attempts.get(AttemptId(number, t.number, t.winner or t.attempts)) for t in tasks]
        told = [(task, attempt) for task, attempt in zip(tasks, attempts, strict=True) if attempt]
        for feed in tuple(self._of_job[number]):
            is_news = feed.cursor < (now, tasks[0].number)  # else they were read from disk before we heard of them
            ends = [feed.end_of(job, task, attempt) for task, attempt in told] if feed.is_live and is_news else []
            known = [end for end in ends if end is not None]
            if len(known) < len(tasks):
                feed.fall_behind()
                continue
            for start in range(0, len(known), PART):
                part, last = known[start : start + PART], start + PART >= len(known)
                has_room = feed.send(part, (now, tasks[start + len(part) - 1].number), over if last else None)
                if not has_room and not (last and over):
                    feed.fall_behind()
                    break


def is_all_to_come(state: State, number: int) -> bool:
    """Nothing of this job has finished, so that nothing need be read from disk to follow it from its beginning."""
    job = state.jobs.get(number)
    return job is not None and not job.is_over and job.succeeded + job.failed == 0


def written(cursor: Cursor) -> str:
    return f"{cursor[0]!r}@{cursor[1]}"
