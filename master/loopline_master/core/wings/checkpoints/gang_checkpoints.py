"""Checkpoints of gangs: each member saves its own state, and its program has all of them save the same steps.

A *cut* is one checkpoint of each member, all of the same step and the same launch. Only a cut is a state of the whole
gang: all members of a new launch continue from it, or all begin from the start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence

from loopline_master.core.wings.checkpoints.saved_work import SavedCheckpoint
from loopline_shared.model import AttemptId
from loopline_shared.parallel import rank_of
from loopline_shared.protocol.checkpoints import MAX_STEP

Cut = Sequence[SavedCheckpoint]
"""By rank."""


def is_news(saved: SavedCheckpoint, known: Iterable[SavedCheckpoint]) -> bool:
    """Return True if a member has saved a further step. One of the same name may be part of another launch's cut."""
    if saved.step is None or any(one.manifest == saved.manifest for one in known):
        return False
    return all((one.step or 0) < saved.step for one in known if one.attempt == saved.attempt)


def cuts(saved: Iterable[SavedCheckpoint], nodes: int) -> list[Cut]:
    """Return the cuts among these checkpoints of one task, the newest step last."""
    found: defaultdict[tuple[int, int], dict[int, SavedCheckpoint]] = defaultdict(dict)
    for one in saved:
        if one.step is not None:
            rank = rank_of(one.attempt, nodes)
            found[one.step, one.attempt - rank][rank] = one
    return [[found[at][rank] for rank in range(nodes)] for at in sorted(found) if len(found[at]) == nodes]


def worth_keeping(
    saved: Sequence[SavedCheckpoint], cut: Cut, alive: Container[AttemptId], kept: int
) -> list[SavedCheckpoint]:
    """Return those of the cut, and of each member that is alive the ``kept`` newest and some earlier ones, in order.

    A member whose uploads take long sends few steps, which are multiples of a larger power of two. So of the other
    members' steps, the newest multiple of each power of two waits for it.
    """
    wanted, count, highest = {one.manifest for one in cut}, Counter[int](), Counter[int]()
    for one in reversed(saved):
        if not kept or AttemptId(one.job, one.task, one.attempt) not in alive:
            continue
        step = one.step or 0
        power = step & -step or MAX_STEP
        count[one.attempt] += 1
        if count[one.attempt] <= kept or power > highest[one.attempt]:
            wanted.add(one.manifest)
        highest[one.attempt] = max(power, highest[one.attempt])
    return [one for one in saved if one.manifest in wanted]
