"""Learning from a gang's end: its program's work, but not its workers' speeds, as they waited for one another."""

from __future__ import annotations

from collections.abc import Sequence

from loopline_master.core.estimates import measure, program_history
from loopline_master.core.kernel.entities import Attempt, Job, Program
from loopline_master.core.kernel.runs import Observation
from loopline_master.core.kernel.state import State


def learn(state: State, job: Job, members: Sequence[Attempt]) -> None:
    """Learn from the members of a gang that has succeeded, and advance virtual time by their work."""
    grid, now = state.grid, state.now
    shown = [measure.work_shown(state.workers[member.worker], member) for member in members]
    kept = sum(member.done_before for member in members)  # in the checkpoints that they continued from
    size = job.sweep.size_at(members[0].task)
    work = size if size is not None else sum(shown) + kept
    for member, part in zip(members, shown, strict=True):
        member.work = work * part / sum(shown)
    measure.learn_duration(job, sum(shown) + kept, size)
    job.work_done += work
    grid.work_accepted += work
    grid.tasks_accepted += 1
    grid.virtual = state.index.virtual_time.after(grid.virtual, work)
    if kept:  # a remainder teaches nothing about whole tasks
        return
    program = state.programs.get(job.program) or Program(*job.program, first_run_at=now, used_at=now)
    if program_history.is_news(program, now):
        program_history.learn(program, _observation(members, sum(shown), now))
    else:
        program.runs += 1
    state.put(program)


def _observation(members: Sequence[Attempt], work: float, now: float) -> Observation:
    """Return the run of the whole gang: the sums of its members' times, and the longest of their run times."""
    return Observation(
        now,
        members[0].worker,
        work,
        wall_s=max(member.wall_s for member in members),
        cpu_s=sum(member.cpu_s for member in members),
        system_s=sum(member.system_s for member in members),
        peak_memory_bytes=max(member.peak_memory_bytes for member in members),
    )
