"""The change feed passes every commit to readers of changes and to subscribers to the results of a job.

A subscription is *live* once all earlier results have been sent: the results of each commit then go out in the order
of their cursors, without a read of the database. Otherwise it is *behind*, because it has just begun, its reader is
slow, or a commit holds a result only in part. Its owner then reads from disk until no new result arrived during a
read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from secrets import token_hex
from typing import Any, Generic, Protocol, TypeVar

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Attempt, Job, Task
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptId, JobState, TaskState

log = logging.getLogger(__name__)

_FAULT_LOGGED_EVERY_S = 60.0
MAX_NAMED = 10_000
"""Most jobs, and most workers, that one change names, and that are kept for readers that reconnect."""

End = TypeVar("End")
Name = TypeVar("Name", int, str)
FINISHED = (TaskState.SUCCEEDED, TaskState.FAILED)
PART = 500
"""Results in one message, or in one read from disk."""
Cursor = tuple[float, int]
"""The finish time and the number of the last task that was sent."""


@dataclass(slots=True)
class Change:
    """Jobs and workers that commits have changed. ``missed``: there were more than are named."""

    jobs: dict[int, None] = field(default_factory=dict)  # as sets that remember the order
    workers: dict[str, None] = field(default_factory=dict)
    missed: bool = False

    @classmethod
    def by(cls, effects: Effects) -> Change:
        """Return what a commit has changed."""
        change = cls(dict.fromkeys(effects.jobs), dict.fromkeys((*effects.workers, *effects.gone)))
        for task in effects.tasks:
            change.jobs[task.job] = None
        for attempt in effects.attempts:
            change.jobs[attempt.job] = None
        return change

    def add(self, later: Change) -> None:
        """Add a later change. Of too many names the oldest are forgotten."""
        self.jobs.update(later.jobs)
        self.workers.update(later.workers)
        for names in (self.jobs, self.workers):
            while len(names) > MAX_NAMED:
                del names[next(iter(names))]  # type: ignore[arg-type]
                self.missed = True


class LastChanges(Generic[Name]):
    """The names that changed last, each once, so memory does not depend on the number of changes."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Name, int] = OrderedDict()  # by name: its latest change, the oldest first
        self._forgotten = 0  # the latest change of a name that was dropped

    def add(self, names: Iterable[Name], count: int) -> None:
        """Note the names of a change. Of too many names the oldest are dropped."""
        counts = self._counts
        for name in names:
            counts[name] = count
            counts.move_to_end(name)
        while len(counts) > MAX_NAMED:
            self._forgotten = counts.popitem(last=False)[1]

    def since(self, count: int) -> dict[Name, None] | None:
        """Return the names of all changes after this one, the oldest first; None if some were dropped."""
        if count < self._forgotten:
            return None
        later = list(takewhile(lambda name: self._counts[name] > count, reversed(self._counts)))
        return dict.fromkeys(reversed(later))


class ChangeReader:
    """Collects changes until its reader asks for them."""

    def __init__(self) -> None:
        self._change = Change()
        self._changed = asyncio.Event()

    async def next(self) -> Change:
        """Return what has changed since the last call; wait until something has."""
        await self._changed.wait()
        self._changed.clear()
        change, self._change = self._change, Change()
        return change

    def add(self, change: Change) -> None:
        """Collect what a commit has changed."""
        self._change.add(change)
        self._changed.set()


class CommitListener(Protocol):
    """Receives commits."""

    def on_commit(self, effects: Effects) -> None:
        """Read what was committed: later steps change the entities in it."""


class Faults:
    """Errors of listeners to commits. They are logged and the master continues: no row depends on a listener."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def note(self, watcher: object) -> None:
        """Log the error that is being handled, with its traceback once a minute for each kind of watcher."""
        kind = getattr(watcher, "__qualname__", type(watcher).__qualname__)
        if time.monotonic() - self._logged_at.get(kind, -math.inf) >= _FAULT_LOGGED_EVERY_S:
            self._logged_at[kind] = time.monotonic()
            log.exception("%s failed on a commit, which is a bug of Loopline; the master continues without it", kind)


class ChangeFeed:
    """Passes commits to its listeners, in the order they were added, and every commit's changes to readers."""

    def __init__(self) -> None:
        self._listeners: dict[CommitListener, frozenset[type]] = {}  # in the order they were added
        self._readers: dict[ChangeReader, None] = {}
        self._jobs, self._workers = LastChanges[int](), LastChanges[str]()
        self._count = 0  # changes published
        self.faults = Faults()
        self._life = token_hex(4)  # of this run of the master: counts of another one mean nothing here

    @property
    def mark(self) -> str:
        """The position after the latest change, for ``since``."""
        return f"{self._life}-{self._count}"

    def add_listener(self, listener: CommitListener, *kinds: type) -> None:
        """Pass later commits to this listener: all, or those with rows or notices of wings of these classes."""
        self._listeners[listener] = frozenset(kinds)

    @contextmanager
    def read(self) -> Iterator[ChangeReader]:
        """Open a reader, which gets all later changes.

        Open it first, then read the state, then wait for changes: so that none is missed.
        """
        reader = ChangeReader()
        self._readers[reader] = None
        try:
            yield reader
        finally:
            del self._readers[reader]

    def since(self, mark: str) -> Change:
        """Return the changes since a mark; ``missed`` is True if the mark is of another run or too old."""
        at = self._count_at(mark)
        jobs, workers = self._jobs.since(at), self._workers.since(at)
        if not 0 <= at <= self._count or jobs is None or workers is None:
            return Change(missed=True)
        return Change(jobs, workers)

    def is_after(self, mark: str, other: str) -> bool:
        """True if ``mark`` is not before ``other``; False for marks of another run."""
        return 0 <= self._count_at(other) <= self._count_at(mark)

    def _count_at(self, mark: str) -> int:
        """Return the number of changes before a mark; -1 if it is of another run."""
        life, _, count = mark.partition("-")
        return int(count) if life == self._life and count.isascii() and count.isdigit() and len(count) < 16 else -1

    def publish(self, effects: Effects) -> None:
        """Pass a commit on."""
        for listener, kinds in self._listeners.items():
            if kinds and kinds.isdisjoint(effects.of_wings) and kinds.isdisjoint(effects.told_by_wings):
                continue
            try:
                listener.on_commit(effects)
            except Exception:
                self.faults.note(listener)
        self._publish_change(Change.by(effects))

    def note_worker(self, name: str) -> None:
        """Publish that a worker reported load that is not committed (core/wings/leases/kept_back.py)."""
        self._publish_change(Change(workers={name: None}))

    def _publish_change(self, change: Change) -> None:
        if not change.jobs and not change.workers:
            return
        self._count += 1
        self._jobs.add(change.jobs, self._count)
        self._workers.add(change.workers, self._count)
        for reader in self._readers:
            reader.add(change)


@dataclass(eq=False, slots=True)
class Subscription(Generic[End]):
    """A reader's subscription to one job.

    ``put`` takes results to be sent and returns True if there is room for more; with a state, the job has ended in
    it and these results are the last. ``end_of`` makes the result of a finished task from its decisive attempt, or
    returns None if it is not complete in memory. ``on_behind`` is called when the rest must be read from disk.
    """

    job: int
    put: Callable[[Subscription[End], list[End], JobState | None], bool]
    on_behind: Callable[[Subscription[End]], None]
    end_of: Callable[[Job | None, Task, Attempt], End | None]
    cursor: Cursor = (0.0, 0)
    is_live: bool = False
    is_stirred: bool = False  # a result was committed since the last read

    def fall_behind(self) -> None:
        """Have the next results read from disk."""
        self.is_stirred = True
        if self.is_live:
            self.is_live = False
            self.on_behind(self)

    def send(self, ends: list[End], at: Cursor, over: JobState | None = None) -> bool:
        """Send results and advance the cursor to ``at``; with ``over`` they are the last ones."""
        self.cursor = at
        return self.put(self, ends, over)


AnySubscription = Subscription[Any]


class Subscriptions:
    """The subscriptions, by job: a listener of the change feed."""

    def __init__(self) -> None:
        self._of_job: dict[int, list[AnySubscription]] = {}
        self._faults = Faults()
        self.count = 0
        """Number of open subscriptions."""

    def open(self, subscription: AnySubscription) -> None:
        """Send to this subscription from now on."""
        self._of_job.setdefault(subscription.job, []).append(subscription)
        self.count += 1

    def close(self, subscription: AnySubscription) -> None:
        """Send nothing more to this subscription."""
        of_job = self._of_job.get(subscription.job, [])
        if subscription in of_job:
            of_job.remove(subscription)
            self.count -= 1
        if not of_job:
            self._of_job.pop(subscription.job, None)

    def on_commit(self, effects: Effects) -> None:
        """Send the results of a commit, which is on disk."""
        if not self._of_job:
            return
        finished: dict[int, list[Task]] = {}
        for task in effects.tasks.values():
            if task.job in self._of_job and task.finished_at == effects.grid.now and task.state in FINISHED:
                finished.setdefault(task.job, []).append(task)
        over = {job.id: job.state for job in effects.jobs.values() if job.is_over and job.id in self._of_job}
        for number, tasks in finished.items():
            self._send(number, sorted(tasks, key=lambda task: task.number), effects, over.pop(number, None))
        for number, state in over.items():
            for subscription in tuple(self._of_job[number]):
                if subscription.is_live:
                    subscription.put(subscription, [], state)
                else:
                    subscription.fall_behind()

    def _send(self, number: int, tasks: list[Task], effects: Effects, over: JobState | None) -> None:
        """Send the finished tasks of one job, in the order of their numbers."""
        job, now = effects.jobs.get(number), effects.grid.now
        attempts = [effects.attempts.get(AttemptId(number, t.number, t.winner or t.attempts)) for t in tasks]
        known = [(task, attempt) for task, attempt in zip(tasks, attempts, strict=True) if attempt]
        made: dict[object, list[list[Any]]] = {}  # by end_of: made once for all followers
        for subscription in tuple(self._of_job[number]):
            is_new = subscription.cursor < (now, tasks[0].number)  # else they have been read from disk already
            if subscription.is_live and is_new and len(known) == len(tasks):
                try:
                    if subscription.end_of not in made:
                        made[subscription.end_of] = _parts([subscription.end_of(job, *one) for one in known])
                    if _send_parts(subscription, made[subscription.end_of], tasks, now, over):
                        continue
                except Exception:  # this follower continues from disk, the others are served
                    self._faults.note(subscription)
            subscription.fall_behind()


def _parts(ends: list[End | None]) -> list[list[End | None]]:
    """Return the results in parts; empty if one of them is incomplete in memory."""
    return [] if None in ends else [ends[start : start + PART] for start in range(0, len(ends), PART)]


def _send_parts(
    subscription: Subscription[End], parts: list[list[End]], tasks: list[Task], now: float, over: JobState | None
) -> bool:
    """Send the results of these tasks. Return True if they were complete and there is room for later ones."""
    sent = 0
    for part in parts:
        sent += len(part)
        is_last = sent == len(tasks)
        at = now, tasks[sent - 1].number
        if not subscription.send(part, at, over if is_last else None) and not (is_last and over):
            return False
    return bool(parts)


def starts_from_zero(state: State, number: int) -> bool:
    """True if no task of this job has finished: a follower can skip the disk."""
    job = state.jobs.get(number)
    return job is not None and not job.is_over and job.succeeded + job.failed == 0


def written(cursor: Cursor) -> str:
    """Return the cursor as clients send it back."""
    return f"{cursor[0]!r}@{cursor[1]}"
