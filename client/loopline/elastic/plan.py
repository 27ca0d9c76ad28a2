"""The plan of allocations: (demand, allocations, limits, now) -> how many to submit, which to cancel. Pure.

It decides only how many workers there are; which task goes where is the master's business. Its rules are those of
HyperQueue's automatic allocation: a backlog, a maximum, a pause after failures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from loopline_shared.protocol.gpus import COMPUTER
from loopline_shared.rest.bodies import DemandLine, DemandView

_WORTH_S = 10.0
"""Tasks that wait at busy workers count if one is expected to take this long."""


class Stage(StrEnum):
    """Stages of an allocation's life, as far as they are known here."""

    ASKED = "asked"  # noted down, then submitted: after a crash it may be in the engine's queue or not
    QUEUED = "queued"  # by the engine
    RUNNING = "running"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Allocation of one worker, which bears its name."""

    name: str
    asked_at: float
    stage: Stage = Stage.ASKED
    id: str = ""  # the engine's; empty: it has not said one
    has_joined: bool = False  # its worker was seen at the master
    over_at: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.stage is Stage.OVER

    def ended(self, now: float) -> Allocation:
        """Return it as it is once it is over."""
        return replace(self, stage=Stage.OVER, over_at=now)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits set by the operator, and the offer of each allocation's worker."""

    most: int = 10  # allocations that are queued or run
    backlog: int = 4  # of them, that are queued
    slots: int = 1  # of each
    time_limit_s: float = 3600.0  # of each
    resources: Mapping[str, int] = field(default_factory=dict)  # of each, GPUs among them
    memory_bytes: int | None = None  # of each; None: enough for any task
    labels: tuple[str, ...] = ()
    pause_after: int = 3  # allocations in a row whose workers never joined
    pause_s: float = 300.0


@dataclass(frozen=True, slots=True)
class AllocationPlan:
    """Submissions and cancels that are due now, and why there are no more."""

    submit: int = 0
    cancel: tuple[str, ...] = ()
    why: str = ""


def plan(demand: DemandView, allocations: Sequence[Allocation], limits: Limits, now: float) -> AllocationPlan:
    """Return the allocations to request or to cancel, so that tasks that could start now have slots."""
    there = [one for one in allocations if not one.is_over]
    queued = [one for one in there if one.stage is not Stage.RUNNING or not one.has_joined]
    wanted = math.ceil(max(slots_wanted(demand, limits) / limits.slots, units_wanted(demand, limits)))
    if wanted < len(queued):
        surplus = [one for one in queued if one.stage is Stage.QUEUED and not one.has_joined]
        surplus.sort(key=lambda one: one.asked_at, reverse=True)
        called_back = tuple(one.name for one in surplus[: len(queued) - wanted])
        return AllocationPlan(cancel=called_back, why=f"{wanted} would do for what could start")
    missing, room = wanted - len(queued), min(limits.most - len(there), limits.backlog - len(queued))
    if not missing:
        return AllocationPlan(why="nothing more could start" if not wanted else "enough are asked for")
    if (until := paused_until(allocations, limits)) > now:
        words = f"paused for {until - now:.0f} s: {limits.pause_after} workers in a row never joined"
        return AllocationPlan(why=words)
    if room <= 0:
        is_full = len(there) >= limits.most
        words = f"{limits.most} are there, the most" if is_full else f"{len(queued)} are queued, the backlog"
        return AllocationPlan(why=words)
    return AllocationPlan(submit=min(missing, room), why=f"{missing} more would be busy at once")


def slots_wanted(demand: DemandView, limits: Limits) -> int:
    """Return the slots that tasks would occupy which workers of these allocations could run."""
    return sum(_tasks(one) * one.slots for one in demand.demands if could_serve(one, limits))


def units_wanted(demand: DemandView, limits: Limits) -> float:
    """Return the number of workers that have the units, such as GPUs, which those tasks would have."""
    wanted = Counter[str]()
    for one in demand.demands:
        if could_serve(one, limits):
            wanted.update({name: _tasks(one) * units for name, units in one.needs.items()})
    offered = _offered(limits)
    return max((units / offered[name] for name, units in wanted.items()), default=0.0)


def _offered(limits: Limits) -> Mapping[str, int]:
    """Return the units of a worker; an exclusive task takes the worker itself."""
    return {**limits.resources, COMPUTER: 1}


def could_serve(one: DemandLine, limits: Limits) -> bool:
    """True if the worker of an allocation could run such a task, and be done with it in its time."""
    return (
        one.nodes == 1
        and one.slots <= limits.slots
        and set(one.labels) <= set(limits.labels)
        and (limits.memory_bytes is None or one.memory_bytes <= limits.memory_bytes)
        and (one.expected_s is None or one.expected_s < limits.time_limit_s)
        and all(units <= _offered(limits).get(name, 0) for name, units in one.needs.items())
        and one.os in (None, "linux")
        and not one.folder
    )


def paused_until(allocations: Sequence[Allocation], limits: Limits) -> float:
    """Return the end of the pause after failures; 0 if the latest allocations did not all fail."""
    over = sorted((one for one in allocations if one.is_over), key=lambda one: one.over_at)
    latest = over[-limits.pause_after :]
    has_failed = len(latest) == limits.pause_after and not any(one.has_joined for one in latest)
    return latest[-1].over_at + limits.pause_s if has_failed else 0.0


def _tasks(one: DemandLine) -> int:
    return one.tasks - one.coming + (one.waiting if (one.expected_s or 0.0) >= _WORTH_S else 0)
