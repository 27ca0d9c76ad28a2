"""The life of a gang from its first dispatch to its end: its members' reports decide its phase.

| phase     | all prepared | a member gone or failed | one silent for a lease, or claimed | time over   |
| preparing | commit       | stands down             | stands down                        | stands down |
| running   |              | moves                   | halted: all others are frozen      |             |
| halted    |              | moves                   | halted; running when all are back  | moves       |

A member is *claimed* if its worker reports it frozen: the owner of the computer is there.
*Standing down* and *moving* are the same action (``disband``): the rest of the launch is cancelled and the task waits
for another one, on any workers. It uses up one of the job's attempts if a member failed through its own fault, and
none otherwise. The gang has succeeded when every member has succeeded.
"""

from __future__ import annotations

from dataclasses import replace

from loopline_master.core.estimates import measure
from loopline_master.core.kernel import lifecycle, transitions
from loopline_master.core.kernel.entities import LIVE, Attempt, Job
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs import learning
from loopline_master.core.wings.gangs.gang import PHASES, Gang, GangPhase
from loopline_master.core.wings.gangs.gang_memory import GangMemory, drop_gang
from loopline_shared.model import AttemptId, AttemptState, Outcome, Result, TaskId, TaskState
from loopline_shared.parallel import launch_of
from loopline_shared.protocol.gang_messages import Member

_PREPARED, _LOST = AttemptState.PREPARED, AttemptState.LOST


def gang_of(state: State, attempt: Attempt) -> Gang | None:
    """Return the launch that the attempt is a member of; None if it belongs to no active launch."""
    return state.own(GangMemory).gangs.get(launch_of(attempt.id, state.jobs[attempt.job].nodes))


def launches_of(state: State, task: TaskId) -> list[Gang]:
    """Return the active launches of a task, the first one first: several if its job asks for replicas."""
    memory = state.own(GangMemory)
    return [memory.gangs[AttemptId(*task, first)] for first in sorted(memory.index.launches.get(task, ()))]


def members_of(state: State, gang: Gang) -> list[Attempt]:
    """Return the members that are in memory, by rank: all of them while the launch is active."""
    ids = (gang.member(rank) for rank in range(len(gang.workers)))
    return [state.attempts[one] for one in ids if one in state.attempts]


# Reports of a member's worker.


def note_member(state: State, gang: Gang, attempt: Attempt, member: Member) -> None:
    """Note that a member is at its worker and has not begun."""
    if attempt.state is _LOST:
        come_back(state, attempt, _PREPARED)
    elif attempt.state is _PREPARED and gang.phase is GangPhase.PREPARING and not member.is_ready:
        attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, AttemptState.DISPATCHED)
        state.put(attempt)
    elif attempt.state is AttemptState.DISPATCHED and member.is_ready:
        attempt.state = transitions.check(transitions.ATTEMPT, attempt.state, _PREPARED)
        state.put(attempt)
        if attempt.number == gang.first:
            address = state.workers[attempt.worker].facts.address or attempt.worker
            gang.rendezvous = f"{address}:{member.port}"
            state.put(gang)


def take_result(state: State, attempt: Attempt, result: Result) -> None:
    """Process the end of a member. After success it waits for the others; any other end ends all of them.

    The end of a member of a disbanded launch has no consequence.
    """
    gang = gang_of(state, attempt)
    if gang is None:
        lifecycle.finish_attempt(state, attempt, _without_consequence(result))
        return
    if attempt.state is AttemptState.FINISHED:
        return  # a repetition
    if result.outcome is not Outcome.SUCCEEDED or gang.phase is GangPhase.PREPARING:
        has_lied = result.outcome is Outcome.SUCCEEDED
        lifecycle.finish_attempt(state, attempt, _without_consequence(result) if has_lied else result)
        reason = result.reason or f"rank {attempt.number - gang.first} ended: {result.outcome}"
        disband(state, gang, reason)
        if result.is_final and result.outcome is Outcome.FAILED:
            _fail_for_good(state, gang, reason)
        return
    if attempt.assumed_cpu_ms:
        measure.undo_assumed_loss(state.jobs[attempt.job], attempt)
    lifecycle.record(state, attempt, result, AttemptState.FINISHED)
    attempt.ended_at = None
    state.put(state.jobs[attempt.job])
    state.put(attempt)
    if all(member.state is AttemptState.FINISHED for member in members_of(state, gang)):
        _succeed(state, gang)
    else:
        _clear(state, gang, attempt.worker)


def lose(state: State, attempt: Attempt, reason: str, *, for_good: bool) -> None:
    """Mark an attempt as lost."""
    gang = gang_of(state, attempt)
    if gang is None:
        lifecycle.lose_attempt(state, attempt, reason, for_good=for_good)
    elif for_good or gang.phase is GangPhase.PREPARING:
        lifecycle.mark_lost(state, attempt, reason, for_good=True)
        disband(state, gang, f"{attempt.worker}: {reason}")
    else:
        lifecycle.mark_lost(state, attempt, reason, for_good=False)
        _halt(state, gang, attempt, f"{attempt.worker} is lost")


def come_back(state: State, attempt: Attempt, new: AttemptState) -> None:
    """Take a lost member back in this state; its gang is halted and has not been moved yet.

    A member with a term that still runs is called back, as any attempt is (wings/fencing), and its gang moves.
    """
    job, gang = state.jobs[attempt.job], gang_of(state, attempt)
    if gang is not None and attempt.term_s is not None and new is not AttemptState.DELIVERING:
        disband(state, gang, f"{attempt.worker} was silent for its whole term")
        lifecycle.adopt_attempt(state, attempt)
        return
    measure.undo_assumed_loss(job, attempt)
    attempt.state, attempt.reason = transitions.check(transitions.ATTEMPT, attempt.state, new), ""
    if new is not _PREPARED:
        attempt.started_at = attempt.started_at or state.now
    state.put(job)
    state.put(attempt)


def follow(state: State, attempt: Attempt, seen: int) -> None:
    """Update the phase of a member's gang after a Report of its worker.

    ``seen``: the last Assign that the worker has carried out. A member that has received its word and does otherwise
    is sent it again; a member that is frozen although it was sent its word to run is held by its owner.
    """
    gang = gang_of(state, attempt)
    if gang is None:
        return
    has_heard = attempt.sent <= seen  # also if nothing was sent to it in this session
    match gang.phase, attempt.state:
        case GangPhase.PREPARING, AttemptState.PREPARED:
            _commit_if_ready(state, gang)
        case GangPhase.PREPARING, AttemptState.RUNNING | AttemptState.FROZEN | AttemptState.DELIVERING:
            disband(state, gang, f"{attempt.worker} began before the start was named")
        case GangPhase.RUNNING, AttemptState.FROZEN if has_heard and attempt.sent:
            _halt(state, gang, attempt, f"the owner of {attempt.worker} is back")
        case (
            GangPhase.HALTED,
            AttemptState.RUNNING | AttemptState.PREPARED | AttemptState.DELIVERING,
        ) if attempt.worker in gang.culprits:
            _clear(state, gang, attempt.worker)
        case (GangPhase.RUNNING, AttemptState.PREPARED | AttemptState.FROZEN) | (
            GangPhase.HALTED,
            AttemptState.RUNNING,
        ) if has_heard:
            _say(state, attempt)


# Consequences.


def expire(state: State) -> None:
    """Have gangs stand down that took too long to prepare, and move gangs that were halted for too long."""
    memory = state.own(GangMemory)
    for index, limit_s, said in (
        (memory.index.preparing, state.settings.gang_prepare_s, "not all members were ready in time"),
        (memory.index.halted, state.settings.gang_grace_s, ""),
    ):
        while index.order and index.order[0][0] + limit_s <= state.now:
            gang = memory.gangs[index.order[0][1]]
            disband(state, gang, said or gang.reason)


def wake_at(state: State) -> float | None:
    """Return when the next gang will have taken too long; None if there is none."""
    index, settings = state.own(GangMemory).index, state.settings
    limits = ((index.preparing.order, settings.gang_prepare_s), (index.halted.order, settings.gang_grace_s))
    return min((order[0][0] + limit_s for order, limit_s in limits if order), default=None)


def disband_job(state: State, job: Job, reason: str, *, if_it_runs: bool) -> None:
    """Disband the gangs of a job. Running gangs continue unless ``if_it_runs``."""
    for number in list(state.index.ready_sets[job.id].kept):
        for gang in launches_of(state, job.task_id(number)):
            if if_it_runs or gang.phase is GangPhase.PREPARING:
                disband(state, gang, reason)


def disband(state: State, gang: Gang, reason: str) -> None:
    """End the rest of a launch. Its task waits for another launch, unless it has one or has failed too often."""
    for member in members_of(state, gang):
        if member.state in LIVE:
            lifecycle.cancel_attempt(state, member, reason[:500])
        elif member.state in (_LOST, AttemptState.FINISHED):
            _give_up(state, member, reason)
    drop_gang(state, gang)
    task = state.tasks.get(gang.task_id)
    if task is not None:
        lifecycle.reconsider_task(state, task)


def _give_up(state: State, member: Attempt, reason: str) -> None:
    """End a member that has finished or is lost, unless it may still be running, and that matters."""
    if member.state is _LOST and lifecycle.may_come_back(state, member):
        return
    if member.state is AttemptState.FINISHED:
        job, task = state.jobs[member.job], state.tasks[member.task_id]
        member.state = transitions.check(transitions.ATTEMPT, member.state, AttemptState.CANCELLED)
        member.reason = reason[:500]
        measure.account(job, task, member, Outcome.SUCCEEDED)
        state.put(job)
    member.ended_at = state.now
    state.put(member)


def _commit_if_ready(state: State, gang: Gang) -> None:
    """Set the start, if every member is ready and its worker can be sent it."""
    members = members_of(state, gang)
    if all(member.state is _PREPARED and state.workers[member.worker].reported for member in members):
        _turn(state, gang, GangPhase.RUNNING)


def _halt(state: State, gang: Gang, attempt: Attempt, reason: str) -> None:
    """Have all other members frozen, because this one is frozen or lost."""
    if attempt.worker not in gang.culprits:
        gang.culprits = (*gang.culprits, attempt.worker)
    if gang.phase is GangPhase.HALTED:
        state.put(gang)
        return
    gang.reason = reason
    _turn(state, gang, GangPhase.HALTED)


def _clear(state: State, gang: Gang, worker: str) -> None:
    """Have all members continue if this worker was the last cause of the halt."""
    if worker in gang.culprits:
        gang.culprits = tuple(name for name in gang.culprits if name != worker)
        state.put(gang)
    if gang.phase is GangPhase.HALTED and not gang.culprits:
        gang.reason = ""
        _turn(state, gang, GangPhase.RUNNING)


def _turn(state: State, gang: Gang, phase: GangPhase) -> None:
    """Enter another phase, and send every member its word."""
    gang.phase = transitions.check(PHASES, gang.phase, phase)
    gang.since = state.now
    state.put(gang)
    for member in members_of(state, gang):
        _say(state, member)


def _say(state: State, member: Attempt) -> None:
    member.sent = 0
    state.put(member)


def _succeed(state: State, gang: Gang) -> None:
    """Accept the results of all members. Other launches of the task end."""
    job, task, members = state.jobs[gang.job], state.tasks[gang.task_id], members_of(state, gang)
    for member in members:
        member.state = transitions.check(transitions.ATTEMPT, member.state, AttemptState.SUCCEEDED)
        member.accepted, member.ended_at = True, state.now
        measure.account(job, task, member, Outcome.SUCCEEDED)
    task.winner = gang.first
    for worker in lifecycle.ended(state, job, task, members[0]):
        lifecycle.retract_from(state, worker, lifecycle.IN_QUARANTINE)
    learning.learn(state, job, members)
    drop_gang(state, gang)
    lifecycle.end_task(state, job, task, TaskState.SUCCEEDED)
    state.put(*members)
    for other in launches_of(state, task.id):
        disband(state, other, f"the launch of attempt {gang.first} brought the result first")


def _fail_for_good(state: State, gang: Gang, reason: str) -> None:
    """Fail the task of a disbanded launch, because no other launch can succeed."""
    task = state.tasks[gang.task_id]
    if task.is_open:
        lifecycle.end_task(state, state.jobs[gang.job], task, TaskState.FAILED, reason)
    for other in launches_of(state, gang.task_id):
        disband(state, other, reason)


def _without_consequence(result: Result) -> Result:
    """Return the result as if the attempt had been preempted, without its task's fault."""
    if result.outcome is Outcome.CANCELLED:
        return result
    reason = result.reason or "its gang did not continue without it"
    return replace(result, outcome=Outcome.GIVEN_BACK, reason=reason, took_down=False)
