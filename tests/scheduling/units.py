"""Jobs that hold units, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loopline_master.core.events import JobSubmitted, LimitChanged
from loopline_master.core.kernel.effects import Reply, Submitted
from loopline_shared.model import AttemptId, Facts, Resource
from tests.scheduling.driver import Grid, facts, spec


def offering(slots: int = 1, **resources: int) -> Facts:
    return replace(facts(slots), resources=tuple(Resource(*one) for one in sorted(resources.items())))


def running(grid: Grid, job: int | None = None) -> list[AttemptId]:
    everywhere = [attempt for agent in grid.agents.values() for attempt in agent.running]
    return [attempt for attempt in everywhere if job in (None, attempt.job)]


def submit(
    grid: Grid, count: int = 1, owner: str = "ann", requires: dict[str, Any] | None = None, **more: Any
) -> int:
    """Submit a job of this user; ``needs``: the units that each attempt holds, ``computer`` among them."""
    needs = dict(more.pop("needs", {}))
    asked = {**(requires or {}), **({"exclusive": True} if needs.pop("computer", 0) else {}), "needs": needs}
    reply = grid.ask(JobSubmitted(owner, spec(count, requires=asked, **more)))
    assert isinstance(reply, Submitted), reply
    return reply.job


def worker_of(grid: Grid, attempt: AttemptId) -> str:
    return grid.store.attempts[attempt].worker


def limit(grid: Grid, name: str, units: int | None, user: str = "") -> Reply:
    return grid.ask(LimitChanged(name, user, units))
