"""Estimated ends of holders: attempts with units or slots that another task needs."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import LIVE, Attempt, Job
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptId, AttemptState


def left_s(state: State, attempt: Attempt) -> float:
    """Return the time until an attempt is expected to end, in seconds: at its limit if nothing else is known.

    Infinity if it has no limit either, is frozen, or was lost on a worker that does not end it; 0 if it is being
    cancelled, can be retracted, or has ended.
    """
    if attempt.state is AttemptState.LOST and attempt.term_s is None:
        return inf
    job = state.jobs[attempt.job]
    if attempt.is_queued or attempt.state not in LIVE or attempt.state is AttemptState.DELIVERING:
        return 0.0
    if attempt.stands_still:
        return inf
    if measure.is_known(job, attempt.task):
        return measure.left_of(state.grid, job, state.workers[attempt.worker], attempt)
    if job.spec.timeout_s is None:
        return inf
    return max(0.0, job.spec.timeout_s - (state.now - attempt.dispatched_at))


def has_end(state: State, attempt: Attempt) -> bool:
    """True if ``left_s`` is finite."""
    if attempt.state is AttemptState.LOST and attempt.term_s is None:
        return False
    if attempt.is_queued or attempt.state not in LIVE or attempt.state is AttemptState.DELIVERING:
        return True
    job = state.jobs[attempt.job]
    return not attempt.stands_still and (job.spec.timeout_s is not None or measure.is_known(job, attempt.task))


def limits_suffice_later(state: State, key: RequirementClass) -> bool:
    """True if the limits of a class will allow a task once the holders with an expected end have ended."""
    for missing, holders in state.index.requirements.units.shortages(key):
        left = missing
        for number, units in holders:
            left -= units if has_end(state, state.attempts[number]) else 0
            if left <= 0:
                break
        else:
            return False
    return True


def latest_reserved(state: State, holders: Iterable[tuple[AttemptId, int]]) -> Job | None:
    """Return the job of the latest of these attempts, if that started by a reservation or with units set aside.

    Otherwise return None: the next units may be reserved. Reserving them twice in a row could keep narrow tasks out.
    """
    latest = max((state.attempts[number].dispatched_at, number) for number, _ in holders)[1]
    job = state.jobs[latest.job]
    return job if job.by_reservation == latest.task else None
