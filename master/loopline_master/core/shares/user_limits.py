"""Limits of one user: jobs that have not ended, their tasks and specs, and slots at once."""

from __future__ import annotations

from loopline_master.core.effects import Declined
from loopline_master.core.state import State


def too_much_of(state: State, owner: str, tasks: int, spec_bytes: int) -> Declined | None:
    """Return the refusal of a job with which its user would exceed a limit; None if it is accepted."""
    counts, settings = state.index.users, state.settings
    hint = "wait until some have ended, or cancel some; an admin sets limits.{}"
    for name, what, used, more, allowed in (
        ("user_jobs", "unfinished jobs", counts.jobs.get(owner, 0), 1, settings.user_jobs),
        ("user_tasks", "unfinished tasks", counts.tasks.get(owner, 0), tasks, settings.user_tasks),
        (
            "user_spec_bytes",
            "bytes of unfinished jobs' specs",
            counts.spec_bytes.get(owner, 0),
            spec_bytes,
            settings.user_spec_bytes,
        ),
    ):
        if allowed is not None and used + more > allowed:
            has = f"{owner} has {used:,} of the {allowed:,} {what} that one user may have"
            message = f"{has}; this would be {more:,} more"
            return Declined(429, name, message, hint.format(name))
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
