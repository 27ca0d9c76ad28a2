"""Plans of gangs: promises that only move forward, no overlap, and the same plans after a restart."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.wings.gangs.planning.horizon import MARGIN_S
from loopline_master.core.wings.gangs.planning.plan import PlanKind, steps_of
from loopline_master.core.wings.gangs.planning.pool import MOST_SLOTS, PlannedGang, Pool
from loopline_master.core.wings.gangs.planning.scans.lattice import Lattice
from tests.campaign import PATIENT, tried
from tests.scheduling.plan_world import PlanWorld

LATTICES = [Lattice(1), Lattice(2, 2, 8), Lattice(32)]


@st.composite
def worlds(draw: st.DrawFn) -> PlanWorld:
    slots = draw(st.lists(st.integers(1, 4), min_size=2, max_size=7))
    return PlanWorld(slots, draw(st.sampled_from(LATTICES)))


def _act(data: st.DataObject, world: PlanWorld) -> bool:
    """Do one random action in the world. Return whether it may break a promise."""
    names = sorted(world.computers)
    name, number = data.draw(st.sampled_from(names)), st.integers
    match data.draw(st.sampled_from(["arrive", "arrive", "task", "task", "end", "cancel", "lose", "claim", "back"])):
        case "arrive":
            limit, is_given = data.draw(number(1, 40)), data.draw(st.booleans())
            nodes, slots, runs = number(2, len(names)), number(1, 2), number(1, limit if is_given else 60)
            world.arrive(data.draw(nodes), data.draw(slots), limit, data.draw(runs), is_given=is_given)
        case "task":
            lasts = data.draw(number(1, 40))
            world.start_task(
                name, data.draw(number(1, 2)), lasts, data.draw(number(1, 60)), is_limited=data.draw(st.booleans())
            )
        case "end":
            for one in world.computers[name].runs[:1]:
                one.ends = world.now
        case "cancel":
            if world.waiting:
                world.cancel(data.draw(st.sampled_from(sorted(world.waiting))))
        case "lose":
            world.computers[name].is_here = False
            return True
        case "claim":
            world.computers[name].offered = data.draw(number(0, world.computers[name].slots))
            return True
        case "back":
            world.computers[name].is_here, world.computers[name].offered = True, world.computers[name].slots
    return False


@settings(PATIENT, max_examples=tried(30, 3000))
@given(worlds(), st.data())
def test_promise_moves_back_only_for_a_recorded_loss_or_claim(world: PlanWorld, data: st.DataObject) -> None:
    told: dict[int, float] = {}  # promises
    is_disturbed = (
        False  # a claimed worker may be missing only later: until then an estimated end could make up for it
    )
    for _ in range(data.draw(st.integers(1, 25))):
        deeds = [_act(data, world) for _ in range(data.draw(st.integers(0, 3)))]
        is_disturbed = is_disturbed or any(deeds)
        known = len(world.broken)
        world.pass_time(data.draw(st.sampled_from([0, 1, 3, 10])))
        reasons = {one.job: one.reason for one in world.broken[known:]}
        assert all(reasons.values())
        assert not reasons or is_disturbed
        for job, start in told.items():
            kept = world.starts.get(job, None)
            plan = world.book.plans.get(job)
            now = plan.start if plan is not None else kept
            if job not in reasons and (job in world.waiting or kept is not None):
                assert now is not None
                assert now <= start + MARGIN_S
        told = {
            job: plan.start
            for job, plan in world.book.plans.items()
            if plan.kind is PlanKind.PROMISE and plan.start is not None
        }
        _check_overlap(world)


def _check_overlap(world: PlanWorld) -> None:
    """Raises AssertionError if a worker is planned for more than it offers, at any time."""
    for name, computer in world.computers.items():
        plans = [near for _, near in world.book.planned_on(name)]
        busy = [one.busy for one in computer.runs]
        for at in [near.start for near in plans]:
            used = sum(one.slots for one in busy if one.end > at)
            planned = sum(near.slots for near in plans if near.start <= at < near.end)
            assert used + planned <= computer.offered, f"{name} at {at}"
    for plan in world.book.plans.values():
        gang = world.waiting[plan.job]
        assert plan.start is None or len(set(plan.machines)) == gang.nodes
        assert plan.start is None or plan.start + steps_of(plan.limit_s) > world.now


@settings(PATIENT, max_examples=tried(20, 1000))
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, MOST_SLOTS)), min_size=1),
    st.integers(1, 5),
    st.integers(1, 9),
)
def test_pool_counts_the_slots_of_each_worker_separately(
    taken: list[tuple[int, int]], nodes: int, slots: int
) -> None:
    pool, free = Pool(), [MOST_SLOTS] * 5
    names = [f"w{number}" for number in range(5)]
    whole = piece = sum(pool.enter(name, "") for name in names) * MOST_SLOTS
    for number, many in taken:
        before = piece
        if pool.holds([piece], (pool.of([names[number]]), many)):
            piece, free[number] = pool.occupy(piece, (pool.of([names[number]]), many)), free[number] - many
            assert pool.free(piece, (pool.of([names[number]]), many)) == before
        assert pool.releases(piece, before) == (piece != before)
        assert not pool.releases(before, piece)
    able = [name for name, left in zip(names, free, strict=True) if left >= slots]
    place = pool.place([whole, piece], PlannedGang(1, 1, nodes, slots, pool.of(names)), 0)
    assert place == (tuple(able[:nodes]) if len(able) >= nodes else None)


@settings(PATIENT, max_examples=tried(12, 1000))
@given(worlds(), st.data())
def test_every_gang_eventually_starts(world: PlanWorld, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 12))):
        if _act(data, world):
            for computer in world.computers.values():
                computer.is_here, computer.offered = True, computer.slots
        world.pass_time(1)
    for computer in world.computers.values():
        computer.is_here, computer.offered = True, computer.slots
    for _ in range(600):
        world.pass_time(7)
    possible = [
        gang.job
        for gang in world.waiting.values()
        if sum(one.slots >= gang.slots for one in world.computers.values()) >= gang.nodes
    ]
    assert not possible
