"""Stored programs, their lists and deletion; the last hour of workers."""

from __future__ import annotations

import time

from loopline_master.core.events import Batch
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Grid, Program
from loopline_master.core.kernel.runs import Observation
from loopline_master.store import Store
from loopline_shared.model import AttemptState
from loopline_shared.rest.bodies import QuarantineView
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep


def a_program(name: str = "pi", used_at: float = 5.0, *works: float, owner: str = "ann") -> Program:
    window = tuple(
        Observation(9.0, f"w{place % 2}", work, wall_s=work, cpu_s=work, system_s=0.5, peak_memory_bytes=10**6)
        for place, work in enumerate(works)
    )
    return Program(owner, name, "/home/ann", 1.0, used_at, len(window), window, strange=1, recorded=3.0)


async def learn(store: Store, *programs: Program, forgotten: tuple[Program, ...] = ()) -> None:
    effects = Effects(Grid(now=9.0), programs={program.key: program for program in programs})
    effects.forgotten = [program.key for program in forgotten]
    await store.commit(Batch(9.0), effects)


async def test_program_is_loaded_as_it_was_stored(store: Store) -> None:
    kept = [a_program("a", 5.0, 1.0, 2.0), a_program("b")]
    await learn(store, *kept)
    assert (await store.snapshot()).programs == kept


async def test_every_change_of_a_program_is_stored(store: Store) -> None:
    program = a_program("a", 5.0, 1.0, 2.0)
    await learn(store, program)
    for change in ({"used_at": 7.0}, {"runs": 3}, {"recorded": 4.0}, {"window": program.window[1:], "strange": 0}):
        for name, value in change.items():
            setattr(program, name, value)
        await learn(store, program)
        assert (await store.snapshot()).programs == [program], change


async def test_forgotten_program_is_deleted_and_can_be_learned_again(store: Store) -> None:
    old, other = a_program("a", 5.0, 1.0), a_program("b", 6.0, 1.0)
    await learn(store, old, other)
    again = a_program("a", 7.0, 9.0)
    await learn(store, again, forgotten=(old, other))
    assert (await store.snapshot()).programs == [again]


async def test_programs_are_paged_by_their_latest_use(store: Store) -> None:
    await learn(store, *(a_program(name, at, 1.0) for name, at in zip("abcdefg", [3, 5, 5, 5, 5, 9, 1], strict=True)))
    names, cursor = [], None
    while True:
        page = await store.programs.page(cursor=cursor, limit=2)
        names += [program.name for program in page.items]
        if (cursor := page.next) is None:
            break
    assert names == list("fbcdeag")


async def test_programs_can_be_filtered_by_owner_and_name(store: Store) -> None:
    await learn(store, a_program("a"), a_program("b"), a_program("a", owner="bob"))
    assert [(p.user, p.name) for p in (await store.programs.page(name="a")).items] == [("ann", "a"), ("bob", "a")]
    assert [(p.user, p.name) for p in (await store.programs.page(owner="bob")).items] == [("bob", "a")]


async def test_view_of_a_program_summarizes_its_runs(store: Store) -> None:
    await learn(store, a_program("a", 5.0, 1.0, 2.0, 3.0), a_program("b"))
    view = (await store.programs.page(name="a")).items[0]
    assert (view.runs, view.wall_s, view.cpu_s, view.system_s, view.peak_memory_bytes) == (3, 2.0, 2.0, 0.5, 10**6)
    assert view.workers == {"w0": 2, "w1": 1}
    assert view.predicted is not None
    assert [run.work for run in view.latest] == [1.0, 2.0, 3.0]


async def test_last_hour_shows_the_share_used_by_tasks(store: Store) -> None:
    now = time.time()
    done = ended(ended_at=now - 60, work=600.0, wall_s=300.0)
    await keep(
        store, a_worker("ant", session=3, offered=4), a_worker("bee"), a_job(), a_task(1), a_task(2), a_task(3)
    )
    lost = ended(ended_at=now - 60, accepted=False, state=AttemptState.CANCELLED, wall_s=100.0)
    long = ended(ended_at=now - 60, work=7200.0, wall_s=7200.0)  # half of it was before the hour
    old = ended(ended_at=now - 4000, work=999.0)
    attempts = [an_attempt(1, **done), an_attempt(2, **long), an_attempt(3, **old), an_attempt(1, number=2, **lost)]
    await keep(store, *attempts, new=False)
    ant = await store.workers.detail("ant", last_hour=True)
    assert ant is not None
    assert ant.last_hour is not None
    assert (ant.last_hour.used, ant.last_hour.tasks) == (600.0 + 3600.0, 2)
    assert ant.last_hour.slot_s == 300.0 + 100.0 + 3600.0
    assert ant.last_hour.offered == 4 * 1.5 * 3600.0, "slots x speed x one hour"
    assert ant.last_hour.share == ant.last_hour.used / ant.last_hour.offered
    bee = (await store.workers.page(last_hour=True)).items[1]
    assert bee.last_hour is not None
    assert (bee.last_hour.used, bee.last_hour.share) == (0.0, None)
    assert (await store.workers.page()).items[0].last_hour is None, "only on request"


async def test_view_of_a_worker_shows_speed_queue_and_quarantine(store: Store) -> None:
    now = time.time()
    barred = {"quarantined_until": 9e9, "quarantine_reason": "task 1.1 failed there", "quarantines": 2, "health": 0.5}
    await keep(store, a_worker("ant", session=3, offered=2, work_done=300.0, work_s=50.0, **barred), a_job())
    await keep(store, a_task(1), a_task(2), a_task(3), new=False)
    await keep(
        store,
        an_attempt(1, dispatched_at=now - 10, expected_s=100.0),
        an_attempt(2, dispatched_at=now - 90, expected_s=30.0),  # late
        an_attempt(3, dispatched_at=now - 10, expected_s=7.0, state=AttemptState.PREFETCHED),
        new=False,
    )
    ant = await store.workers.detail("ant")
    assert ant is not None
    assert 90.0 < ant.queue_s <= 97.0
    assert ant.speed == 300.0 / 50.0
    assert ant.quarantine == QuarantineView(until=9e9, reason="task 1.1 failed there")
