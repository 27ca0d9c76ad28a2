"""The grids that are explored. Workers have one slot, and are all connected at first."""

from __future__ import annotations

from typing import Any

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.wings.resources.limit import WHOLE_GRID, Limit
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import Facts, Order
from loopline_shared.spec import JobSpec
from tests.explored.grid import Configuration, Left


def _facts(**more: Any) -> Facts:
    return Facts("linux", "x86_64", "3.11", "0", "model", cpus=1, memory_bytes=10**9, slots=1, **more)


def _jobs(**tasks: tuple[int, dict[str, Any]]) -> dict[str, JobSpec]:
    """Return jobs by name, each of this many tasks and with these fields in its spec."""
    return {
        name: JobSpec(
            name=name, command=["work"], parameters={"i": Range(range=[1, count])} if count > 1 else None, **more
        )
        for name, (count, more) in tasks.items()
    }


def _settings(order: Order = Order.HOLD, **more: Any) -> SchedulerSettings:
    return SchedulerSettings(order=order, single_task_order="hold", quarantine_s=0.0, max_attempts=2, **more)


TWO = {"ant": _facts(), "bee": _facts()}
GANGS = {name: _facts(gangs=True) for name in TWO}
FENCED = {"ant": _facts(fences=True)}
LICENCE = (Limit("licence", WHOLE_GRID, 1),)
_NEEDS = {"requires": Requirements(needs={"licence": 1}), "size": 1.0}

QUICK = (
    Configuration(
        "two equal jobs of two tasks, under hold, while the master restarts",
        _jobs(A=(2, {"size": 2.0}), B=(2, {"size": 2.0})),
        TWO,
        Left(restarts=1),
        _settings(max_replicas=1),
        in_order=True,
    ),
    Configuration(
        "a job of two tasks, while a link breaks and the worker is given up",
        _jobs(A=(2, {"size": 2.0})),
        TWO,
        Left(cuts=1, deadlines=1),
        _settings(),
    ),
    Configuration(
        "two tasks that need one licence, while a worker is lost and the master restarts",
        _jobs(A=(2, _NEEDS)),
        TWO,
        Left(cuts=1, deadlines=1, restarts=1),
        _settings(max_replicas=1),
        LICENCE,
    ),
    Configuration(
        "a job of two tasks, while a computer sleeps and is given up",
        _jobs(A=(2, {"size": 2.0})),
        TWO,
        Left(sleeps=1, deadlines=1),
        _settings(),
    ),
    Configuration(
        "two tasks that must not run twice, one of them waiting, while the computer sleeps and is given up",
        _jobs(A=(2, {"size": 2.0, "max_replicas": 1})),
        FENCED,
        Left(sleeps=1, deadlines=2),
        _settings(prefetch_s=10.0),
    ),
)
"""Explored by ``make test``."""

LARGE = (
    Configuration(
        "two equal jobs of two tasks and replicas, under hold",
        _jobs(A=(2, {"size": 2.0}), B=(2, {"size": 2.0})),
        TWO,
        Left(),
        _settings(),
        in_order=True,
    ),
    Configuration(
        "two jobs of one task, delivered in order, while the master restarts",
        _jobs(A=(1, {"size": 1.0}), B=(1, {"size": 1.0})),
        TWO,
        Left(restarts=1),
        _settings(Order.DELIVER),
        in_order=True,
    ),
    Configuration(
        "a task that needs two results that agree, while a link breaks",
        _jobs(A=(1, {"size": 1.0, "quorum": 2})),
        TWO,
        Left(failures=1, cuts=1, deadlines=1),
        _settings(),
    ),
    Configuration(
        "a gang of two members and a job of one task, while the master restarts",
        _jobs(A=(1, {"size": 2.0, "nodes": 2}), B=(1, {"size": 1.0})),
        GANGS,
        Left(restarts=1),
        _settings(),
    ),
    Configuration(
        "two jobs, of which one is cancelled, limited to one attempt at a time",
        _jobs(A=(2, {"size": 2.0, "max_running": 1}), B=(1, {"size": 1.0})),
        TWO,
        Left(cancels=1),
        _settings(Order.NONE),
        in_order=True,
    ),
    Configuration(
        "two tasks that need one licence, while a computer sleeps and the master restarts",
        _jobs(A=(2, _NEEDS)),
        TWO,
        Left(sleeps=1, deadlines=1, restarts=1),
        _settings(max_replicas=1),
        LICENCE,
    ),
)
"""Explored by ``make test-full``, in one minute."""

LARGEST = (
    Configuration(
        "jobs that are cancelled, limited to one attempt at a time",
        _jobs(A=(2, {"size": 2.0, "max_running": 1}), B=(1, {"size": 1.0})),
        TWO,
        Left(failures=1, cancels=1),
        _settings(Order.NONE),
    ),
    Configuration(
        "three equal jobs of two tasks, under hold, while the master restarts",
        _jobs(A=(2, {"size": 2.0}), B=(2, {"size": 2.0}), C=(2, {"size": 2.0})),
        TWO,
        Left(restarts=1),
        _settings(max_replicas=1),
        in_order=True,
    ),
    Configuration(
        "two equal jobs, delivered in order, while the master restarts",
        _jobs(A=(2, {"size": 1.0}), B=(1, {"size": 1.0})),
        TWO,
        Left(restarts=1),
        _settings(Order.DELIVER),
    ),
    Configuration(
        "a gang of two members, while a computer sleeps",
        _jobs(A=(1, {"size": 2.0, "nodes": 2})),
        GANGS,
        Left(sleeps=1, deadlines=1),
        _settings(),
    ),
    Configuration(
        "a small job that may pass and an equal one that may not, under hold",
        _jobs(A=(2, {"size": 2.0}), B=(1, {"size": 1.0}), C=(1, {"size": 2.0})),
        TWO,
        Left(),
        _settings(),
    ),
    Configuration(
        "one task, while everything goes wrong once",
        _jobs(A=(1, {"size": 1.0})),
        TWO,
        Left(failures=1, cuts=1, reboots=1, restarts=1, deadlines=1),
        _settings(),
    ),
    Configuration(
        "a gang of two members, while a worker is lost and the master restarts",
        _jobs(A=(1, {"size": 2.0, "nodes": 2})),
        GANGS,
        Left(cuts=1, restarts=1, deadlines=1),
        _settings(),
    ),
)
"""Explored by ``make test-campaigns``, in ten minutes."""
