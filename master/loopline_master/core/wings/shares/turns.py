"""Turns: the policy's proposals, taken from the users in the order of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from loopline_master.core.kernel.state import State
from loopline_master.core.policies.policy import Placement, Proposal, View
from loopline_master.core.wings.shares.accounts import Accounts
from loopline_master.core.wings.shares.user_slots import may_take


def in_turn(state: State, ask: Callable[[View], Iterator[Proposal]], view: View) -> Iterator[Proposal]:
    """Return the proposals of ``ask``, a policy's method: after each, the user who has used least is next.

    Each user's proposals are made by the policy while it sees this user's jobs alone (``Index.turn``). No task is
    prefetched to a busy worker while a user who comes earlier has tasks for it that are too long to wait there: short
    tasks would keep its slots busy for ever. A user at the limit of slots has no turn, and no other user waits for
    them.
    """
    owners = state.index.requirements.owners_in(state.index.open)
    if not owners or (len(owners) < 2 and state.settings.user_slots is None):
        yield from ask(view)
        return
    accounts = state.own(Accounts)
    index, grid, users, rank = state.index, state.grid, accounts.users, accounts.rank
    proposals, passed, pointer = {name: ask(view) for name in owners}, list[str](), grid.pointer
    queue = [(rank(name, state.now), name) for name in owners]
    heapify(queue)
    try:
        while queue:
            _, name = heappop(queue)
            if not may_take(state, name, 1):
                continue
            index.turn, grid.pointer = name, users[name].pointer
            proposal = next(proposals[name], None)
            if proposal is None:
                passed.append(name)
                continue
            if not _is_allowed(state, proposal):
                continue
            if not isinstance(proposal, Placement) or not _passes(state, view, proposal.worker, passed):
                yield proposal
                pointer = grid.pointer
            heappush(queue, (rank(name, state.now), name))
    finally:
        index.turn, grid.pointer = None, pointer


def _is_allowed(state: State, proposal: Proposal) -> bool:
    """True if its user may have the slots now; the first task that is too wide ends their turns in this step."""
    if not isinstance(proposal, Placement):
        return True
    job = state.jobs[proposal.job]
    return may_take(state, job.owner, job.slots)


def _passes(state: State, view: View, worker: str, passed: list[str]) -> bool:
    """True if the worker is busy, and one of these users has tasks to start there."""
    if not passed or view.is_free(state.workers[worker]):
        return False
    ready, served_by = state.index.ready, state.index.requirements.served_by
    return any(not ready.keys().isdisjoint(served_by(worker, name)) for name in passed)
