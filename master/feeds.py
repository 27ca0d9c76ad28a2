"""Results on their way to whoever follows a job: sent from what was just committed, and read from disk where that is
not known.

A feed is *live* when all that came before has been sent: then each commit's results go out as they are, in the order
of their cursors, without a look at the database. Else it is *behind* (it has only begun, its reader is slow, or a
result is not whole in what was committed), and is read on from its cursor until nothing has come meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from master.scheduling.effects import Effects
from master.scheduling.model import Attempt, Task
from shared.calls import Ends, Over, TaskEnd
from shared.model import AttemptId, JobState, TaskState

FINISHED = (TaskState.SUCCEEDED, TaskState.FAILED)
PART = 500
"""Results that are sent in one piece, or read from disk at once."""
Cursor = tuple[float, int]
"""When the last task that was told of finished, and its number."""


@dataclass(eq=False, slots=True)
class Feed:
    """One job's, to one reader. ``put`` takes what is to be sent, and says whether there is room for more;
    ``on_behind`` hears that the rest is to be read.
    """

    job: int
    put: Callable[[Ends | Over], bool]
    on_behind: Callable[[Feed], None]
    cursor: Cursor = (0.0, 0)
    is_live: bool = False
    is_stirred: bool = False  # something came since it was last read

    def fall_behind(self) -> None:
        self.is_stirred = True
        if self.is_live:
            self.is_live = False
            self.on_behind(self)

    def send(self, ends: list[TaskEnd], at: Cursor, over: JobState | None = None) -> bool:
        """These go on after its cursor, and it goes on after ``at``; ``over``: they are the last."""
        self.cursor = at
        return self.put(Ends(self.job, written(at), ends, over))


class Feeds:
    """All of them, by job. It listens to the engine's news."""

    def __init__(self) -> None:
        self._of_job: dict[int, list[Feed]] = {}

    def open(self, feed: Feed) -> None:
        self._of_job.setdefault(feed.job, []).append(feed)

    def close(self, feed: Feed) -> None:
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
                    feed.put(Over(number, state))
                else:
                    feed.fall_behind()

    def _tell(self, job: int, tasks: list[Task], effects: Effects, over: JobState | None) -> None:
        attempts = [effects.attempts.get(AttemptId(job, t.number, t.winner or t.attempts)) for t in tasks]
        is_whole, first = all(attempts), (effects.grid.now, tasks[0].number)
        for feed in tuple(self._of_job[job]):
            is_news = feed.cursor < first  # else they were read from disk before we heard of them
            if not (feed.is_live and is_whole and is_news):
                feed.fall_behind()
                continue
            ends = [_end(task, attempt) for task, attempt in zip(tasks, attempts, strict=True) if attempt]
            for start in range(0, len(ends), PART):
                part, last = ends[start : start + PART], start + PART >= len(ends)
                has_room = feed.send(part, (effects.grid.now, part[-1].number), over if last else None)
                if not has_room and not (last and over):
                    feed.fall_behind()
                    break


def written(cursor: Cursor) -> str:
    return f"{cursor[0]!r}@{cursor[1]}"


def _end(task: Task, attempt: Attempt) -> TaskEnd:
    reason = task.verdict or attempt.reason
    return TaskEnd(task.number, task.state, attempt.worker, attempt.exit_code, reason, attempt.value)
