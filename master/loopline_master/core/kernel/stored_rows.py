"""Rows: the stored state that a scheduler starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from loopline_master.core.kernel.entities import Attempt, Grid, Job, Program, Task, Worker

Entity = TypeVar("Entity")


class Rows(Protocol):
    """Stored rows of unfinished work. The full set is in core/snapshot.py."""

    @property
    def grid(self) -> Grid: ...

    @property
    def jobs(self) -> Sequence[Job]:
        """Jobs that are live, or have attempts that are not over."""

    @property
    def tasks(self) -> Sequence[Task]:
        """Tasks of these jobs that are open, or have attempts that are not over."""

    @property
    def attempts(self) -> Sequence[Attempt]:
        """Attempts that are not over."""

    @property
    def workers(self) -> Sequence[Worker]: ...

    @property
    def started(self) -> dict[int, list[tuple[int, int]]]:
        """By job: half-open ranges of the tasks whose row says ``started``, in any state."""

    @property
    def programs(self) -> Sequence[Program]: ...

    def of(self, kind: type[Entity]) -> Sequence[Entity]:
        """Return the rows of a wing's entities of this class."""
