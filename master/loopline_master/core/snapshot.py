"""Snapshot: the stored rows from which the scheduler goes on after a restart."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.entities import Attempt, Grid, Job, Program, Task, Worker


@dataclass(slots=True)
class Snapshot:
    """The rows of all that is not over."""

    grid: Grid = field(default_factory=Grid)
    jobs: list[Job] = field(default_factory=list)  # live, or with attempts that are not over
    tasks: list[Task] = field(default_factory=list)  # of those: open, or with attempts that are not over
    attempts: list[Attempt] = field(default_factory=list)  # not over: without ended_at
    workers: list[Worker] = field(default_factory=list)
    started: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By job: half-open ranges of the tasks whose row, in whatever state, says ``started``."""
    programs: list[Program] = field(default_factory=list)
