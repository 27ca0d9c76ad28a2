"""Precedence among gangs that wait for the same units: only the first in turn has a plan.

A planned gang keeps slots free. If several gangs kept slots while they waited for the next units of one limit, these
slots would be idle, and another gang might never find enough. So of the gangs that need a limit which is used up, one
has a plan: it *claims* the limit. It keeps the claim until it starts, or cannot wait for units any more.

A gang that must wait for a claim, or for another turn, takes precedence over later gangs in all of its limits:
otherwise gangs that need one limit could keep out a gang that needs two.

A worker has at most one plan for each of its resources. A gang that finds too few workers without such a plan *keeps*
the workers where these plans start first: no new plan for its resources is made there.

Planned gangs start before a policy is asked. Without a rule, one user's gangs could fill all slots for ever, and
another user's tasks of one worker would never start. So gangs have no new plan on workers that tasks of *earlier
users* wait for: users who have used less for their share. A task does not wait for a worker that was idle before this
step: its policy prefers another one. With a limit of slots for each user (``user_slots``) there is no such rule: one
user's gangs leave slots to others, and a task may wait for its own user's limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from loopline_master.core.kernel.index.units import Turn
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.planning.plan import Plan, WaitingGang
from loopline_shared.protocol.gpus import COMPUTER

BEFORE_ALL: Turn = (-inf, 0.0, 0)
_MOST_USERS = 4
"""Users next in turn whose tasks are checked in one step."""


@dataclass(slots=True)
class Precedence:
    """Claimed limits with the jobs that claim them, and the jobs that may have no plan."""

    claims: dict[str, int] = field(default_factory=dict)
    passing: dict[str, Turn] = field(default_factory=dict)  # limits of the others, with the first of their turns
    barred: set[int] = field(default_factory=set)

    def choose(
        self,
        waiting: Iterable[WaitingGang],
        claim_of: Callable[[WaitingGang], int],
        is_possible: Callable[[WaitingGang], bool],
    ) -> None:
        """Choose the gangs that claim their limits: the strongest claim until now first, then in turn.

        ``is_possible``: enough workers could run it.
        """
        self.claims, self.passing, self.barred, taken = {}, {}, set(), set[str]()
        lacking = [one for one in waiting if one.lacks or one.must_pass]
        for one in sorted(lacking, key=lambda one: (-claim_of(one), one.turn)):
            if one.behind is not None or not one.lacks or not is_possible(one):
                self.barred.add(one.job)
                continue
            if one.must_pass or not taken.isdisjoint(one.lacks):
                self.barred.add(one.job)
                for name in one.lacks:
                    self.passing.setdefault(name, one.turn)
            else:
                self.claims.update(dict.fromkeys(one.lacks, one.job))
            taken |= one.lacks

    def note_started(self, job: int) -> None:
        """End the claims of a gang."""
        self.claims = {name: other for name, other in self.claims.items() if other != job}

    def turns(self) -> dict[str, Turn]:
        """Return the limits that gangs lack, with the first turn; claims come before all turns."""
        return self.passing | dict.fromkeys(self.claims, BEFORE_ALL)


def are_rivals(one: Collection[str], other: Collection[str]) -> bool:
    """True if gangs that need these resources are never planned on the same worker."""
    return COMPUTER in one or COMPUTER in other or not frozenset(one).isdisjoint(other)


def first_without_plans(names: Iterable[str], nodes: int, plans: Mapping[str, Iterable[Plan]]) -> list[str]:
    """Return the workers whose plans, if they have any, all start first. ``plans``: rival plans by worker."""
    starts = {name: max((plan.start or 0.0 for plan in plans.get(name, ())), default=0.0) for name in names}
    return sorted(starts, key=lambda name: (starts[name], name))[:nodes]


def workers_by_rank(
    state: State, before: float, touched: Callable[[], Collection[str]]
) -> Iterator[tuple[float, set[str]]]:
    """Yield the ranks of the users next in turn, each with the workers that their tasks of one worker wait for.

    ``before``: ranks from here on do not matter. ``touched`` returns the workers that this step has changed.
    """
    if before <= 0.0 or state.settings.user_slots is not None:  # without accounts all ranks are 0
        return
    index, requirements = state.index, state.index.requirements
    owners = [(state.wings.rank(owner), owner) for owner in requirements.owners_in(index.ready)]
    earlier = sorted(one for one in owners if one[0] < before)
    rests = index.slots.idle.keys.keys() - touched() if earlier else frozenset()
    for rank, owner in islice(earlier, _MOST_USERS):
        found = set[str]()
        for key in requirements.wanted(index.ready, owner):
            found |= requirements.workers[key]
            if len(found) == len(requirements.available):
                break
        yield rank, found - rests
