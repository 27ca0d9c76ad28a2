"""Limit of the slots that one user has at once; a GPU counts as ``gpu_cores`` slots, as in shares."""

from __future__ import annotations

from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.shares.accounts import Accounts


def slots_taken(state: State, owner: str) -> int:
    """Return the slots of a user's tasks, without frozen attempts but with prefetched ones."""
    accounts = state.own(Accounts)
    return accounts.users[owner].charged + accounts.ahead.get(owner, 0)


def slots_of_task(state: State, job: Job, slots: int | None = None) -> int:
    """Return the slots that a task counts as, with its GPUs. ``slots``: taken on its worker; None: as requested."""
    return ((job.slots if slots is None else slots) + state.own(Accounts).slots_for_gpus(job)) * job.nodes


def may_take(state: State, owner: str, slots: int) -> bool:
    """True if a task of this many slots may get them, or its user has none yet.

    So a limit below the need of one task delays this task, but not for ever.
    """
    allowed = state.settings.user_slots
    if allowed is None or not state.own(Accounts).are_kept:
        return True
    taken = slots_taken(state, owner)
    return not taken or taken + slots <= allowed
