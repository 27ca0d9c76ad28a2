"""Settings that the scheduler decides by. Those of the master are derived from this table (settings.py): a setting is
added here, with its description and its limits, and then used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from loopline_shared.model import Order

Amount = Annotated[int, Field(ge=1, le=2**53)]
Period = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
IN_LIMITS = object()
"""Marks a setting that users find in the table ``limits``."""


def _without_limit(value: object) -> object:
    return None if value == "unlimited" else value


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """All settings that bear on a decision. They are part of the event log, so that a replay decides alike."""

    policy: Annotated[str, Field(description="whose turn it is")] = "round-robin"
    order: Annotated[Order, Field(description="what is promised of completions: hold, deliver or none")] = Order.HOLD
    lease_s: Annotated[Period, Field(description="how long a silent worker is believed to be at work")] = 30.0
    report_every_s: Annotated[Period, Field(description="the longest that a worker stays silent")] = 10.0
    stall_after_s: Annotated[Period, Field(description="then a job that no worker can run holds no other")] = 60.0
    max_attempts: Annotated[int, Field(ge=1, le=1000, description="of one task, where its job does not say")] = 3
    max_replicas: Annotated[
        Annotated[int, Field(ge=1, le=65536)] | None,
        BeforeValidator(_without_limit),
        Field(description="attempts of one task at once, where its job does not say"),
    ] = 2
    max_jobs: Annotated[Amount, Field(description="unfinished at once"), IN_LIMITS] = 10_000
    max_tasks: Annotated[Amount, Field(description="of one job"), IN_LIMITS] = 1_000_000
    max_workers: Annotated[Amount, Field(description="known to this master"), IN_LIMITS] = 10_000
    max_programs: Annotated[Amount, Field(description="of which earlier runs are remembered"), IN_LIMITS] = 10_000
    probation_s: Annotated[
        float, Field(ge=0, le=1e6, description="how long a worker on which tasks fail is given nothing new; 0: never")
    ] = 60.0
    max_probation_s: Annotated[Period, Field(description="each time twice as long, up to this")] = 3600.0
    ahead_s: Annotated[
        float, Field(ge=0, le=3600, description="expected work that may wait at a worker, a slot; 0: none")
    ] = 0.0  # as an older log means it; the master's own default is 1
    max_ahead: Annotated[int, Field(ge=0, le=1000, description="tasks that may wait at a worker")] = 256
