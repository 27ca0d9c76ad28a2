"""Limits of one user: jobs and tasks that have not ended, and slots at once."""

from __future__ import annotations

from loopline_master.core.effects import Declined
from loopline_master.core.state import State
from loopline_shared.errors import Quota


def too_much_of(state: State, owner: str, tasks: int) -> Declined | None:
    """Return the refusal of a job of so many tasks that exceeds a limit of its user; None if it is accepted."""
    counts, settings = state.index.users, state.settings
    hint = "wait until some have ended, or cancel some; an admin sets limits.{}"
    for what, used, more, allowed in (
        ("jobs", counts.jobs.get(owner, 0), 1, settings.user_jobs),
        ("tasks", counts.tasks.get(owner, 0), tasks, settings.user_tasks),
    ):
        if allowed is not None and used + more > allowed:
            has = f"{owner} has {used:,} of the {allowed:,} unfinished {what} that one user may have"
            message = f"{has}; this would be {more:,} more"
            quota = Quota(allowed, max(0, allowed - used), what)
            return Declined(429, f"user_{what}", message, hint.format(f"user_{what}"), quota)
    return None


def slots_taken(state: State, owner: str) -> int:
    """Return the slots that a user's tasks have, frozen ones left out, and those that wait at workers will have."""
    accounts = state.accounts
    return accounts.users[owner].at_work + accounts.ahead.get(owner, 0)


def may_take(state: State, owner: str, slots: int) -> bool:
    """True if a task of so many slots may get them. Where its user has none, it may in any case.

    So a limit that is lower than what one task needs delays this task, and does not keep it for ever.
    """
    allowed = state.settings.user_slots
    if allowed is None or not state.accounts.are_kept:
        return True
    taken = slots_taken(state, owner)
    return not taken or taken + slots <= allowed
