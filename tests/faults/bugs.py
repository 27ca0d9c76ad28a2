"""Bugs that a campaign must catch: each replaces one function in the process of a real daemon.

Only `tests/faults/planted_master` and `planted_worker`, which run a daemon under test, plant them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

VARIABLE = "PLANTED_BUG"
BUGS: dict[str, Callable[[], None]] = {}
LATE_S = 0.05
SOON_S = 2.0


def plant_as_told() -> None:
    """Plant the bugs named in the environment into this process."""
    for name in os.environ[VARIABLE].split(","):
        BUGS[name]()


def bug(plant: Callable[[], None]) -> Callable[[], None]:
    """Register a bug under its function's name."""
    BUGS[plant.__name__] = plant
    return plant


@bug
def losers_are_not_killed() -> None:
    """The state stays true: a master that believed in its losers would soon stop at its own checks."""
    from loopline_master.core.kernel.sessions import worker_sessions

    worker_sessions._TO_CANCEL = ()


@bug
def a_second_result_is_accepted() -> None:
    from loopline_master.core.kernel import lifecycle
    from loopline_shared.model import AttemptState

    record = lifecycle.record

    def generous(state: Any, attempt: Any, result: Any, end: AttemptState) -> None:
        record(state, attempt, result, end)
        attempt.accepted = attempt.state is AttemptState.SUCCEEDED

    lifecycle.record = generous


@bug
def the_hold_is_ignored() -> None:
    from loopline_master.core.kernel.index.job_order import HoldIndex

    HoldIndex.blocker = lambda self, arrival, weight: None  # type: ignore[method-assign]


@bug
def the_master_speaks_before_it_has_committed() -> None:
    """Frames of a step leave a moment before its commit, which is lost if the master is killed in between."""
    from loopline_master.engine import Store

    commit, before = Store.commit, list[Awaitable[None]]()

    async def late(self: Store, batch: Any, effects: Any) -> None:
        async def write(previous: Awaitable[None] | None) -> None:
            if previous:
                await previous
            await asyncio.sleep(LATE_S)  # the planted bug
            await commit(self, batch, effects)

        before[:] = [asyncio.ensure_future(write(before[0] if before else None))]

    Store.commit = late  # type: ignore[method-assign]


@bug
def the_walls_have_a_gap() -> None:
    """Tasks can see the folder with the files of this grid's daemons."""
    from pathlib import Path

    from loopline_worker.launch import sandbox

    visible = sandbox.visible
    sandbox.visible = lambda shows=(), hides=(), shares=(): visible((*shows, Path.home()), (), shares)


@bug
def any_certificate_will_do() -> None:
    import ssl

    from loopline_worker.link import master_trust

    trusting = master_trust.trusting

    def credulous(ca: str, key_pair: tuple[str, str] | None = None) -> ssl.SSLContext:
        context = trusting(ca, key_pair)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    master_trust.trusting = credulous


@bug
def what_could_not_be_written_counts_as_written() -> None:
    from loopline_master.store.store import StoreBroken, Writer

    write = Writer.write

    async def careless(self: Writer, work: Any, *, is_short: bool = False) -> Any:
        try:
            return await write(self, work, is_short=is_short)
        except StoreBroken:
            return None

    Writer.write = careless  # type: ignore[method-assign]


@bug
def what_the_bucket_did_not_take_counts_as_kept() -> None:
    from loopline_master.files.bucket_store import BucketStore
    from loopline_shared.errors import LooplineError

    keep = BucketStore.keep

    def careless(self: BucketStore, file: Any, part: Any, sha256: str, seal: str) -> None:
        try:
            keep(self, file, part, sha256, seal)
        except LooplineError:
            self._know(sha256, part.stat().st_size)

    BucketStore.keep = careless  # type: ignore[method-assign]


@bug
def a_peer_lies() -> None:
    """Not a bug of Loopline: other workers must tolerate such a worker."""
    from benchmarks.light.faulty_worker import lie

    lie()


@bug
def a_piece_is_not_checked() -> None:
    from loopline_shared.pieces import PieceList

    PieceList.is_sound = lambda self, number, content: True  # type: ignore[method-assign]


@bug
def a_gang_begins_without_a_member() -> None:
    from loopline_master.core.wings.gangs import phases
    from loopline_master.core.wings.gangs.gang import GangPhase
    from loopline_shared.model import AttemptState

    def hasty(state: Any, gang: Any) -> None:
        if phases.members_of(state, gang)[0].state is AttemptState.PREPARED:
            phases._turn(state, gang, GangPhase.RUNNING)

    phases._commit_if_ready = hasty


@bug
def a_gang_succeeds_by_its_first_member() -> None:
    from loopline_master.core.wings.gangs import phases

    phases._clear = lambda state, gang, worker: phases._succeed(state, gang)


@bug
def an_old_master_speaks() -> None:
    """The master does not check whether another one has taken over before it answers."""
    from loopline_master.store.lock import Epoch

    Epoch.is_sure = property(lambda self: True)  # type: ignore[assignment,method-assign]


@bug
def a_silent_holder_goes_on() -> None:
    """The worker does not end tasks with units of a limit when the master is silent."""
    from loopline_worker.attempts.fence import Fence

    Fence.prepare = lambda self, run, job: None  # type: ignore[method-assign,assignment]


@bug
def a_checkpoint_is_not_checked() -> None:
    from loopline_worker.checkpoints.local_store import StoredTask

    StoredTask.read = lambda self, sha256: self.path(sha256).read_bytes()  # type: ignore[method-assign]


@bug
def the_loopback_is_a_card() -> None:
    """Not a bug: the loopback has no hardware address, so this worker takes the one in ``PLANTED_CARD``."""
    from dataclasses import replace

    from loopline_shared.protocol.power import Armed, WakeFacts
    from loopline_worker.power import wake_facts

    def read(card: str, subnet: str, *, is_allowed: bool, can_suspend: bool) -> WakeFacts:
        facts = WakeFacts(card, os.environ["PLANTED_CARD"], subnet, from_suspend=Armed.YES)
        return replace(facts, is_allowed=is_allowed, can_suspend=can_suspend)

    wake_facts.read = read  # type: ignore[assignment]


@bug
def wakes_are_given_up_soon() -> None:
    """Not a bug: a wake fails within the time of a campaign."""
    from loopline_master.core.wings.power import wakes

    wakes.GIVE_UP_S = SOON_S


@bug
def a_sleeper_is_not_written() -> None:
    """The master knows that a computer sleeps, but does not store it."""
    from loopline_master.core.wings.power.power_wing import Power

    def forgetful(self: Power, sleeper: Any) -> None:
        self._sleepers.note(sleeper)
        self.state.wings.arrange()

    Power._note = forgetful  # type: ignore[method-assign]


@bug
def a_worker_does_not_come_back() -> None:
    """The worker leaves its link closed when its computer is awake again."""
    from loopline_worker.agent import Agent

    Agent.resume_link = lambda self: None  # type: ignore[method-assign]
