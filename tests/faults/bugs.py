"""Bugs that a campaign must catch: each replaces one function of a real daemon, in its own process.

None is planted but by `tests/faults/planted_master` and `planted_worker`, which run a daemon under test.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

VARIABLE = "PLANTED_BUG"
BUGS: dict[str, Callable[[], None]] = {}
LATE_S = 0.05


def plant_as_told() -> None:
    """Plant the bug that the environment names, in this process."""
    BUGS[os.environ[VARIABLE]]()


def bug(plant: Callable[[], None]) -> Callable[[], None]:
    """Enter a bug under its function's name."""
    BUGS[plant.__name__] = plant
    return plant


@bug
def losers_are_not_killed() -> None:
    from loopline_master.core import lifecycle

    lifecycle.cancel_attempt = lambda state, attempt, reason: None


@bug
def a_second_result_is_accepted() -> None:
    from loopline_master.core import lifecycle
    from loopline_shared.model import AttemptState

    record = lifecycle.record

    def generous(state: Any, attempt: Any, result: Any, end: AttemptState) -> None:
        record(state, attempt, result, end)
        attempt.accepted = attempt.state is AttemptState.SUCCEEDED

    lifecycle.record = generous


@bug
def the_hold_is_ignored() -> None:
    from loopline_master.core.index.job_order import HoldIndex

    HoldIndex.blocker = lambda self, arrival, weight: None  # type: ignore[method-assign]


@bug
def the_master_speaks_before_it_has_committed() -> None:
    """A step is on disk a moment after the world has heard of it, and never if the master is killed just then."""
    from loopline_master.engine import Store

    commit, before = Store.commit, list[Awaitable[None]]()

    async def late(self: Store, batch: Any, effects: Any) -> None:
        async def write(previous: Awaitable[None] | None) -> None:
            if previous:
                await previous
            await asyncio.sleep(LATE_S)
            await commit(self, batch, effects)

        before[:] = [asyncio.ensure_future(write(before[0] if before else None))]

    Store.commit = late  # type: ignore[method-assign]
