"""Explanations of chains: the jobs that a job waits for outside the grid, and chains that can never start."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from loopline_master.core.explain.phrases import counted, tasks_left
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_shared.model import AfterState, JobState, is_reached
from loopline_shared.rest.bodies import Reason
from loopline_shared.spec import JobSpec

_MOST_LEADERS = 5


def chain_reasons(state: State, job: Job, ended: Mapping[int, JobState]) -> list[Reason]:
    """Return the jobs that a job waits for outside the grid; first those that need a user's action."""
    roots = _roots(state, job.waiting_for, ended, job.spec.after_state)
    reasons = [_leader(state, job, number, roots.get(number), ended) for number in job.waiting_for]
    reasons.sort(key=lambda reason: (reason.code != "waits_in_vain", reason.job or 0))
    if len(reasons) > _MOST_LEADERS:
        left = len(reasons) - _MOST_LEADERS
        reasons[_MOST_LEADERS:] = [Reason(code="waits", count=left, detail=f"{counted(left, 'other job')} as well")]
    return reasons


_TO = {"succeeded": "to succeed", "ended": "to end", "failed": "to fail"}


def _leader(state: State, job: Job, number: int, root: int | None, ended: Mapping[int, JobState]) -> Reason:
    if root is not None:
        detail = f"can never start: {_why_never(state, number, root, ended)}"
        step = "that one" if root == number else f"job {root}"
        detail += f"; retry {step}, or cancel this one"
        return Reason(code="waits_in_vain", count=1, detail=detail, job=root)
    leader = state.jobs.get(number)
    if leader is None or leader.is_over:
        return Reason(code="waits", count=0, detail=f"job {number} has just ended", job=number)
    left = leader.task_count - leader.succeeded - leader.failed
    detail = f"waits for job {number} {_TO[job.spec.after_state]} ({leader.state}; {tasks_left(leader)})"
    return Reason(code="waits", count=left, detail=detail, job=number)


def never_starts(state: State, spec: JobSpec, ended: Mapping[int, JobState]) -> list[str]:
    """Return a warning for each dependency that will never be met."""
    roots = _roots(state, spec.after, ended, spec.after_state)
    return [
        f"it can never start: {_why_never(state, number, root, ended)}; `loopline retry {root}` runs that one again"
        for number, root in sorted(roots.items())
        if number in spec.after
    ][:_MOST_LEADERS]


def ends_of_chains(state: State, after: Collection[int]) -> set[int]:
    """Return the jobs at the ends of these chains that are over or forgotten: their rows have their end states."""
    return set(_roots(state, after, {}, "succeeded").values())


def _roots(
    state: State, numbers: Iterable[int], ended: Mapping[int, JobState], awaited: AfterState
) -> dict[int, int]:
    """Return the jobs that cannot reach the awaited state, each with the ended job that is the reason."""
    roots: dict[int, int] = {}
    seen: set[int] = set()
    left = [(number, awaited, False) for number in numbers]
    while left:
        number, state_awaited, are_earlier_known = left.pop()
        job = state.jobs.get(number)
        if job is None or job.is_over:
            found = job.state if job is not None else ended.get(number)
            reaches = state_awaited == "ended" if found is None else is_reached(state_awaited, found)
            if not reaches:
                roots[number] = number
        elif are_earlier_known:
            if (root := next((roots[one] for one in job.waiting_for if one in roots), None)) is not None:
                roots[number] = root
        elif number not in seen:
            seen.add(number)
            left += [(number, state_awaited, True)]
            left += [(one, job.spec.after_state, False) for one in job.waiting_for]
    return roots


def _why_never(state: State, number: int, root: int, ended: Mapping[int, JobState]) -> str:
    job = state.jobs.get(root)
    found = job.state if job is not None else ended.get(root)
    how = "has ended without success" if found is None else f"was {found}"
    how = f"has {found}" if found is JobState.FAILED else how
    return f"job {root} {how}" if root == number else f"job {number} waits for job {root}, which {how}"
