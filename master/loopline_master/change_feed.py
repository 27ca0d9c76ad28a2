"""The change feed: tells those who wait (long requests, event streams) which jobs and workers have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from loopline_master.core.effects import Effects

MAX_NAMED = 10_000
"""At most so many jobs, and so many workers, are named by one change."""


@dataclass(slots=True)
class Change:
    """Jobs and workers that commits have changed since the last call. ``missed``: there were more than are named."""

    jobs: dict[int, None] = field(default_factory=dict)  # as sets that remember the order
    workers: dict[str, None] = field(default_factory=dict)
    missed: bool = False


class ChangeReader:
    """Collects changes until its reader asks for them. Of too many it forgets the oldest."""

    def __init__(self) -> None:
        self._change = Change()
        self._changed = asyncio.Event()

    async def next(self) -> Change:
        """Return what has changed since the last call; wait until something has."""
        await self._changed.wait()
        self._changed.clear()
        change, self._change = self._change, Change()
        return change

    def on_commit(self, effects: Effects) -> None:
        """Collect what a commit has changed."""
        change = self._change
        for of in (effects.jobs, (task.job for task in effects.tasks), (attempt.job for attempt in effects.attempts)):
            change.jobs.update(dict.fromkeys(of))
        change.workers.update(dict.fromkeys(effects.workers))
        for names in (change.jobs, change.workers):
            while len(names) > MAX_NAMED:
                del names[next(iter(names))]  # type: ignore[arg-type]
                change.missed = True
        if change.jobs or change.workers:
            self._changed.set()


class CommitListener(Protocol):
    """Receives every commit."""

    def on_commit(self, effects: Effects) -> None:
        """Read what was committed: later steps change the entities in it."""


class ChangeFeed:
    """Passes every commit to its listeners, in the order in which they were added."""

    def __init__(self) -> None:
        self._listeners: dict[CommitListener, None] = {}  # as a set that remembers the order

    def add_listener(self, listener: CommitListener) -> None:
        """Pass every later commit to this listener."""
        self._listeners[listener] = None

    @contextmanager
    def read(self) -> Iterator[ChangeReader]:
        """Open a reader, which gets all later changes.

        Open it first, then read the state, then wait for changes: so that none is missed.
        """
        reader = ChangeReader()
        self._listeners[reader] = None
        try:
            yield reader
        finally:
            del self._listeners[reader]

    def publish(self, effects: Effects) -> None:
        """Pass a commit on."""
        for listener in self._listeners:
            listener.on_commit(effects)
