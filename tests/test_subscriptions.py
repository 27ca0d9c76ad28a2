"""Subscriptions to results, when reads from disk and notifications of commits overtake each other."""

from __future__ import annotations

from loopline_master.change_feed import Subscription, Subscriptions
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Attempt, Grid, Job, Task
from loopline_shared.model import AttemptState, JobState, TaskState

NOW = 5.0


def commit(*numbers: int) -> Effects:
    """Return the effects of a step in which these tasks of job 1 succeed."""
    effects = Effects(Grid(now=NOW))
    for number in numbers:
        task = Task(1, number, TaskState.SUCCEEDED, attempts=1, winner=1, finished_at=NOW)
        attempt = Attempt(1, number, 1, "w", 1, False, 1.0, AttemptState.SUCCEEDED)
        effects.tasks[task.id], effects.attempts[attempt.id] = task, attempt
    return effects


def test_result_read_before_its_commit_notification_is_not_repeated() -> None:
    sent, behind, subscriptions = list[int](), list[Subscription[int]](), Subscriptions()

    def put(_subscription: Subscription[int], ends: list[int], _over: JobState | None) -> bool:
        sent.extend(ends)
        return True

    def end_of(_job: Job | None, task: Task, _attempt: Attempt) -> int:
        return task.number

    has_read = Subscription(1, put, behind.append, end_of, cursor=(NOW, 2), is_live=True)
    has_not = Subscription(1, put, behind.append, end_of, cursor=(NOW - 1, 7), is_live=True)
    subscriptions.open(has_read)
    subscriptions.open(has_not)
    subscriptions.on_commit(commit(1, 2))
    assert sent == [1, 2]
    assert (behind, has_read.cursor, has_read.is_live) == ([has_read], (NOW, 2), False), "it reads from disk again"
    assert (has_not.cursor, has_not.is_live) == ((NOW, 2), True)


def test_failing_follower_reads_from_disk_and_others_are_served() -> None:
    sent, behind, subscriptions = list[int](), list[Subscription[int]](), Subscriptions()

    def put(_subscription: Subscription[int], ends: list[int], _over: JobState | None) -> bool:
        sent.extend(ends)
        return True

    def fails(*_: object) -> int:
        raise KeyError("metrics")

    broken = Subscription(1, put, behind.append, fails, is_live=True)
    subscriptions.open(broken)
    subscriptions.open(Subscription(1, put, behind.append, lambda _job, task, _attempt: task.number, is_live=True))
    subscriptions.on_commit(commit(1, 2))
    assert (sent, behind, broken.cursor) == ([1, 2], [broken], (0.0, 0))


def test_result_is_built_once_for_all_followers() -> None:
    sent, made, subscriptions = list[list[int]](), list[int](), Subscriptions()

    def put(_subscription: Subscription[int], ends: list[int], _over: JobState | None) -> bool:
        sent.append(ends)
        return True

    def end_of(_job: Job | None, task: Task, _attempt: Attempt) -> int:
        made.append(task.number)
        return task.number

    for _ in range(3):
        subscriptions.open(Subscription(1, put, lambda _: None, end_of, is_live=True))
    subscriptions.on_commit(commit(1, 2))
    assert made == [1, 2]
    assert sent == [[1, 2]] * 3
    assert sent[0] is sent[1] is sent[2], "so that it is encoded only once"
