"""Explanations of a gang: why it waits, or its present phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang import Gang, GangPhase
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.gangs.phases import members_of
from loopline_shared.model import AttemptState
from loopline_shared.rest.bodies import Reason

_MOST_NAMES = 10
_MOST_GANGS = 3


def why_it_waits(state: State, job: Job, count: int) -> Reason:
    """Return the reason why ``count`` tasks of the job do not begin; each needs several workers at once."""
    serving, attempts = state.index.requirements.serving(job), state.index.attempts
    free = sum(state.workers[name].offered - attempts.in_hand(name) >= job.slots for name in serving)
    what = f"{count} tasks wait" if count > 1 else "1 task waits"
    slots = f" with {job.slots} free slots on each" if job.slots > 1 else ""
    detail = f"{what} for {job.nodes} workers at once{slots}: {free} of {len(serving)} are free now"
    return Reason(code="gang", count=count, detail=detail + refusals(state, job))


def not_running(state: State, job: Job) -> list[Gang]:
    """Return the gangs of a job with members that do not run: they are frozen, or still prepared."""
    gangs = state.own(GangMemory).gangs.values() if job.nodes > 1 else ()
    return [gang for gang in gangs if gang.job == job.id and gang.phase is not GangPhase.RUNNING][:_MOST_GANGS]


def phase_reason(state: State, gang: Gang) -> Reason:
    """Return the present phase of a gang with members, as a reason."""
    members = members_of(state, gang)
    if gang.phase is GangPhase.PREPARING:
        late = [member.worker for member in members if member.state is not AttemptState.PREPARED]
        said = f"{len(members) - len(late)} of {len(members)} members are ready to start"
        detail = f"{said}; it waits for {_names(late)}" if late else said
    elif gang.phase is GangPhase.HALTED:
        detail = f"frozen on all of its workers: {gang.reason}"
    else:
        detail = f"running on {_names(gang.workers)}"
        done = sum(member.state is AttemptState.FINISHED for member in members)
        detail += f"; {done} of {len(members)} members have ended well" if done else ""
    return Reason(code="running", count=len(members), detail=detail)


def phases_reason(state: State, launches: Sequence[Gang]) -> Reason:
    """Return the phases of one task's launches: the first one, and replicas if there are any."""
    reasons = [phase_reason(state, gang) for gang in launches]
    details = "; a replica: ".join(reason.detail for reason in reasons)
    return Reason(code="running", count=sum(reason.count for reason in reasons), detail=details)


def refusals(state: State, job: Job) -> str:
    """Return the workers that refuse members of the job by their own settings, in words; perhaps empty."""
    facts = {worker.name: worker.facts for worker in state.workers.values() if worker.is_available}
    asks = job.spec.requires.network
    network = [name for name, one in facts.items() if asks and not (one.network or one.gang_network)]
    said = [f"refusing tasks the network: {_names(network)}"] if network else []
    return "".join(f"; {one}" for one in said)


def _names(names: Iterable[str]) -> str:
    found = list(names)
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(sorted(found[:_MOST_NAMES])) + more
