"""Settings that affect the scheduler's decisions.

The master's settings are derived from this table (settings.py): a setting is added here, with its description and
limits, and then used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from loopline_shared.model import Order, OrderWithin
from loopline_shared.spec import JobSpec

Amount = Annotated[int, Field(ge=1, le=2**53)]
Period = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
IN_LIMITS = object()
"""Marks a setting that users find in the table ``limits``."""


def _without_limit(value: object) -> object:
    return None if value == "unlimited" else value


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """All settings that affect a decision. They are part of the event log, so that a replay decides the same."""

    policy: Annotated[str, Field(description="the scheduling policy")] = "round-robin"
    order: Annotated[Order, Field(description="the guarantee on the order of completions: hold, deliver or none")] = (
        Order.HOLD
    )
    order_within: Annotated[
        OrderWithin, Field(description="the jobs among which it holds: those of the whole grid, or of each user")
    ] = OrderWithin.GRID
    single_task_order: Annotated[
        Literal["deliver", "hold"],
        Field(description="the guarantee for a job of one task where the order is hold: deliver or hold"),
    ] = "deliver"
    lease_s: Annotated[Period, Field(description="how long a silent worker is believed to be working")] = 30.0
    report_every_s: Annotated[Period, Field(description="the longest pause between two reports of a worker")] = 10.0
    stall_after_s: Annotated[
        Period, Field(description="a job that no worker can run holds others back for no longer")
    ] = 60.0
    overdrawn_after: Annotated[
        float,
        Field(
            ge=0, le=1e6, description="a job that has used so many times its size holds no other any more; 0: it does"
        ),
    ] = 0.0  # in tests and simulations; a master's default is 10
    idle_budget_s: Annotated[
        float,
        Field(
            ge=0,
            le=1e9,
            description="how long a job may hold others without progress, beside a slot that is free for them "
            "(or for its size, if that is longer); 0: for ever",
        ),
    ] = 0.0  # in tests and simulations; a master's default is 300
    max_attempts: Annotated[
        int, Field(ge=1, le=1000, description="attempts at a task that may fail, unless its job says otherwise")
    ] = 3
    max_replicas: Annotated[
        Annotated[int, Field(ge=1, le=65536)] | None,
        BeforeValidator(_without_limit),
        Field(description="attempts of a task at once, or unlimited, unless its job says otherwise"),
    ] = 2
    max_jobs: Annotated[Amount, Field(description="unfinished jobs"), IN_LIMITS] = 10_000
    max_tasks: Annotated[Amount, Field(description="tasks of one job"), IN_LIMITS] = 1_000_000
    user_jobs: Annotated[
        Amount | None,
        BeforeValidator(_without_limit),
        Field(description="unfinished jobs of one user, or unlimited; more are refused"),
        IN_LIMITS,
    ] = None  # in tests and simulations; a master's default is 5,000
    user_tasks: Annotated[
        Amount | None,
        BeforeValidator(_without_limit),
        Field(description="tasks of one user's unfinished jobs, or unlimited; more are refused"),
        IN_LIMITS,
    ] = None  # in tests and simulations; a master's default is 5,000,000
    user_spec_bytes: Annotated[
        Amount | None,
        BeforeValidator(_without_limit),
        Field(description="bytes of the specs of one user's unfinished jobs, or unlimited; more are refused"),
        IN_LIMITS,
    ] = None  # in tests and simulations; a master's default is 256 MiB
    user_slots: Annotated[
        Amount | None,
        BeforeValidator(_without_limit),
        Field(description="slots that one user's tasks have at once, or unlimited; others wait; needs shares"),
        IN_LIMITS,
    ] = None
    max_workers: Annotated[Amount, Field(description="workers that this master knows"), IN_LIMITS] = 10_000
    max_programs: Annotated[Amount, Field(description="programs whose past runs are remembered"), IN_LIMITS] = 10_000
    quarantine_s: Annotated[
        float,
        Field(ge=0, le=1e6, description="quarantine of a worker on which tasks fail: it gets no new tasks; 0: none"),
    ] = 60.0
    max_quarantine_s: Annotated[
        Period,
        Field(description="the longest quarantine; each one lasts twice as long as the one before"),
    ] = 3600.0
    gang_prepare_s: Annotated[
        Period, Field(description="a gang of which not all members are ready by then stands down, and is tried again")
    ] = 120.0
    gang_grace_s: Annotated[
        float,
        Field(
            ge=0, le=1e6, description="how long a gang stands frozen for a lost or claimed member; 0: moved at once"
        ),
    ] = 20.0
    limit_grace_s: Annotated[
        float,
        Field(
            ge=0,
            le=1e6,
            description="how long a frozen task may keep units of a limit that others wait for; then it is preempted",
        ),
    ] = 60.0
    sleep_keep_s: Annotated[
        Period,
        Field(description="how long the tasks of a sleeping computer may sleep with it; then they are queued again"),
    ] = 600.0
    wake_at_once: Annotated[
        int,
        Field(ge=0, le=10_000, description="sleeping computers of one subnet that are woken a minute; 0: none are"),
    ] = 4
    sleep_after_s: Annotated[
        Period,
        Field(description="a computer that the grid woke is suspended when it has had no task for this long"),
    ] = 300.0
    plan_times: Annotated[
        str,
        Field(description="the times tried for a gang's start: naive, current, bold, blend and others (rack.md)"),
    ] = "thrifty-blend"
    shares: Annotated[
        bool,
        Field(description="decide between users by what each has used of their share, before the policy decides"),
    ] = False  # in tests and simulations; a master's default is true
    share_half_life_s: Annotated[
        Period, Field(description="half of what a user has used is forgotten after so long")
    ] = 86400.0
    gpu_cores: Annotated[
        int,
        Field(
            ge=0, le=10_000, description="slots that a GPU counts as in shares and user_slots; 0: GPUs do not count"
        ),
    ] = 0
    peers: Annotated[
        bool,
        Field(description="large files may go between workers, on a port that each opens"),
    ] = False
    prefetch_s: Annotated[
        float,
        Field(ge=0, le=3600, description="expected work that is prefetched, for each slot of a worker; 0: none"),
    ] = 0.0  # in tests and simulations; a master's default is 1
    max_prefetch: Annotated[
        int,
        Field(ge=0, le=1000, description="the most tasks that are prefetched to a worker"),
    ] = 256

    def order_of(self, spec: JobSpec, task_count: int) -> Order:
        """Return the order to stamp on a job of this many tasks.

        A part of a session is outside the order: a session is one open job, and none of its calls is its last task.
        Under hold, a job of one task would not even start before all its predecessors have completed, so equal jobs
        would run one at a time beside free slots. A gang stays under hold: it would take many slots, and then wait.
        """
        if spec.session is not None:
            return Order.NONE
        is_delivered = self.order is Order.HOLD and task_count == 1 and spec.nodes == 1
        return Order(self.single_task_order) if is_delivered else self.order
