"""The slots that one user may have at once."""

from __future__ import annotations

from loopline_master.core.kernel.state import State
from loopline_master.core.wings.shares.accounts import Accounts


def slots_taken(state: State, owner: str) -> int:
    """Return the slots that a user's tasks have, frozen ones left out, and those that wait at workers will have."""
    accounts = state.own(Accounts)
    return accounts.users[owner].at_work + accounts.ahead.get(owner, 0)


def may_take(state: State, owner: str, slots: int) -> bool:
    """True if a task of so many slots may get them. Where its user has none, it may in any case.

    So a limit that is lower than what one task needs delays this task, and does not keep it for ever.
    """
    allowed = state.settings.user_slots
    if allowed is None or not state.own(Accounts).are_kept:
        return True
    taken = slots_taken(state, owner)
    return not taken or taken + slots <= allowed
