"""Demand: tasks that could start now if there were slots for them, for each different requirement.

Tasks that are held, paused, or beyond a limit of their user are not counted: another worker would not start them.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopline_master.core.estimates import measure
from loopline_master.core.explain.explain_units import limits_used_up
from loopline_master.core.kernel.eligibility import startable_tasks
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.index.requirement_class import requirement_class_of
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.power.power_wing import Power
from loopline_master.core.wings.shares.accounts import Accounts
from loopline_master.core.wings.shares.user_slots import slots_of_task, slots_taken
from loopline_shared.rest.bodies import DemandLine, DemandView


def demand_view(state: State) -> DemandView:
    """Return the demand by requirement, in the order of the jobs' arrival: O(n) in live jobs, for people."""
    alike: dict[RequirementClass, list[_Part]] = {}
    left, coming_tasks = _slots_left(state), state.wings[Power].coming_tasks()
    for job in state.index.live.values():
        waiting = state.index.attempts.queues.of_job.get(job.id, 0)
        tasks = 0 if limits_used_up(state, job) else _within(left, state, job, startable_tasks(state, job))
        if tasks or waiting:
            key = requirement_class_of(job.spec.requires, job.nodes, limits=state.index.requirements.units.limits)
            alike.setdefault(key, []).append(_Part(job, tasks, coming_tasks(job, tasks), waiting))
    demands = [_demand(state, parts) for parts in alike.values()]
    return DemandView(
        slots=sum((one.tasks - one.coming + one.waiting) * one.nodes * one.slots for one in demands), demands=demands
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a line that is due to one job."""

    job: Job
    tasks: int
    coming: int
    waiting: int


def _demand(state: State, parts: list[_Part]) -> DemandLine:
    job, requires, requirements = parts[0].job, parts[0].job.spec.requires, state.index.requirements
    known_s = [measure.mean_work(state.grid, part.job) for part in parts if measure.is_known(part.job, 1)]
    return DemandLine(
        os=requires.os,
        memory_bytes=requires.memory_bytes,
        labels=sorted(requires.labels),
        slots=requires.slots,
        network=requires.network,
        python=requires.python,
        folder=requires.folder,
        software=requires.software.ability if requires.software else "",
        nodes=job.nodes,
        needs={name: units for name, units in job.needs if name not in requirements.units.limits},
        jobs=len(parts),
        tasks=sum(part.tasks for part in parts),
        coming=sum(part.coming for part in parts),
        waiting=sum(part.waiting for part in parts),
        workers=len(requirements.able[requirements.key_of(job)]),
        expected_s=min(known_s, default=None),
    )


def _slots_left(state: State) -> dict[str, int]:
    """Return the slots that each user may still have at once; empty if users have no limit."""
    allowed = state.settings.user_slots
    if allowed is None or not state.own(Accounts).are_kept:
        return {}
    return {name: max(0, allowed - slots_taken(state, name)) for name in state.own(Accounts).users}


def _within(left: dict[str, int], state: State, job: Job, tasks: int) -> int:
    """Return the number of these tasks that their user's limit lets start, and count them as started.

    A task that alone exceeds the limit can start while its user has no slots taken. It counts as one slot here:
    workers that cannot run it must still be started for the user's other tasks.
    """
    if job.owner not in left or not tasks:
        return tasks
    slots = slots_of_task(state, job)
    if slots > left[job.owner] == state.settings.user_slots:
        left[job.owner] -= 1
        return 1
    tasks = min(tasks, left[job.owner] // slots)
    left[job.owner] -= tasks * slots
    return tasks
