"""The plan book: the plans of all waiting gangs on the present workers, revised after each change.

Its memory is a function of the plans and the horizons: a book made from both continues in the same way. A revision
does bounded work: all displaced plans, some of the new ones, and a part of a pass over the plans that may move
forward. The next revision continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from loopline_master.core.wings.gangs.planning.certainty import Around, Neighbour, delays_a_promise, is_certain, judge
from loopline_master.core.wings.gangs.planning.horizon import AWAY, Horizon
from loopline_master.core.wings.gangs.planning.horizons import Horizons
from loopline_master.core.wings.gangs.planning.plan import (
    BrokenPromise,
    Plan,
    WaitingGang,
    in_order_of_claims,
    plan_of,
    steps_of,
)
from loopline_master.core.wings.gangs.planning.plan_record import note_change, note_start
from loopline_master.core.wings.gangs.planning.planner import Planner, Slot
from loopline_master.core.wings.gangs.planning.pool import Machines, Piece, PlannedGang, Pool, Share, Workers
from loopline_master.core.wings.gangs.planning.precedence import Precedence, are_rivals, first_without_plans
from loopline_master.core.wings.gangs.planning.scans.lattice import Lattice
from loopline_shared.model import TaskId
from loopline_shared.protocol.gpus import COMPUTER

NEW_AT_ONCE, MOVED_AT_ONCE = 4, 4
"""Limits for one revision: gangs planned, and gangs checked for an earlier start."""
Later = tuple[tuple[int, Workers], ...]
"""Workers that may run a gang from a time on."""
_BARRED = "its limits are used up"
_LATER = "it is the turn of users who have used less"
_NEVER = (-1, 0)
"""Before the first plan, in the order of (start, job)."""


class PlanBook:
    """Plans by job. ``eligible`` returns the workers that serve a requirement class."""

    def __init__(self, now: float, eligible: Callable[[Any], Collection[str]]) -> None:
        self.plans: dict[int, Plan] = {}
        self.changed: dict[TaskId, Plan] = {}  # to be stored
        self.broken: list[BrokenPromise] = []  # to be reported
        self.came: list[Plan] = []  # of gangs that were unknown before
        self.cursor: tuple[int, int] | None = None  # (start, job) that a pass has reached; None: no pass is running
        self.is_due_again = False  # a slot was freed since the pass began
        self.lattice_of: Callable[[WaitingGang], Lattice] = lambda waiting: Lattice(1)
        self.eligible_later: Callable[[Any], Mapping[int, Collection[str]]] = lambda needs: {}
        """Returns workers that have too few units of a class left now, by the time when they have enough."""
        self._now, self._tick = now, int(now)
        self._eligible, self._classes = eligible, dict[Hashable, tuple[Workers, Later]]()
        self._pool = Pool()
        self._planner = Planner[PlannedGang, Machines, Piece, Share](self._pool, self._tick)
        self._horizons = Horizons(self._pool, self._planner.profile)
        self._slots: dict[int, Slot[Machines]] = {}  # by job: its plan's place in the profile
        self._gangs: dict[int, PlannedGang] = {}
        self._on: dict[str, set[int]] = {}  # jobs planned on a worker
        self._needing: dict[int, frozenset[str]] = {}  # resources that planned gangs need, by job
        self.precedence = Precedence()
        self._kept: list[tuple[WaitingGang, Workers]] = []  # workers kept from rivals by gangs that have no plan
        self._earlier: list[tuple[float, Workers]] = []  # workers that users' tasks wait for, by the users' ranks
        self._left: Workers = 0  # workers that this revision has left out of plans for such tasks
        self._displaced: dict[int, str] = {}  # jobs whose slots are gone, and the reason
        self._judged: set[int] = set()  # jobs whose plan may have changed its kind
        self._reach = 0  # the farthest time of the profile until now

    def begin(self, now: float) -> None:
        """Begin a revision: all calls until ``revise`` are of this time."""
        self._now, self._tick = now, int(now)
        self._planner.begin_pass(self._tick)
        self._reach = max(self._reach, self._planner.profile.last)
        self._slide()

    def restore(self, plan: Plan, waiting: WaitingGang) -> None:
        """Restore a stored plan. Horizons come first, then plans in the order of their claims."""
        self.plans[plan.job] = plan
        if plan.start is not None:
            gang = self._gang(waiting)
            self._enter(gang, Slot(max(int(plan.start), self._tick), plan.machines))

    def enter(self, workers: Iterable[tuple[str, Horizon, str]]) -> None:
        """Enter all workers of an empty book: their names, horizons and switches."""
        self._horizons.enter(workers, self._tick)

    def set_horizon(self, name: str, horizon: Horizon, switch: str = "") -> None:
        """Note a worker's new horizon; plans that it no longer has room for are displaced."""
        old = self._horizons.of.get(name)
        if old == horizon:
            return
        bit, changes = self._horizons.note(name, horizon, switch, self._tick)
        lifted = [] if self._horizons.has_room(bit, changes) else sorted(self._on.get(name, ()))
        for job in lifted:
            self._lift(job)
        for change in changes:
            self._horizons.change(bit, change)
            if change[2] > 0:
                self._note_freed(*change[:2])
        for job in sorted(lifted, key=lambda job: in_order_of_claims(self.plans[job])):
            self._take_again(job, self._slots[job], horizon.why or f"what runs on {name} takes longer")
        self._judged |= self._on.get(name, set())
        old = old or AWAY
        if horizon.slots > old.slots or horizon.is_open > old.is_open or horizon.why != old.why:
            self._note_freed(self._tick, None)
        elif len(horizon.busy) < len(old.busy):  # even if expected: a coarse scan may have skipped that time
            self._begin_pass()

    def overdue(self) -> set[str]:
        """Return the workers where some work should be over by now; each is returned once for each such end."""
        return self._horizons.overdue(self._tick)

    def withdraw(self, job: int, *, has_started: bool) -> None:
        """Drop the plan of a gang that has started, or no longer waits."""
        plan = self.plans.pop(job)
        if has_started:
            self._tell(note_start(plan, self._now))
        else:
            plan.withdrawn_at = self._now
        plan.sets_aside = False
        self.changed[plan.id] = plan
        if job in self._slots:
            self._lift(job)
            self._note_freed(self._slots[job].start, self._slots[job].start + self._gangs[job].limit)
            self._leave(job)
        self._planner.memory.drop(job)
        self._displaced.pop(job, None)

    def revise(
        self, waiting: Mapping[int, WaitingGang], earlier: Iterable[tuple[float, Collection[str]]] = ()
    ) -> bool:
        """Plan the gangs that need it. Return True if work is left: revise again soon.

        ``earlier``: workers that users' tasks of one worker wait for, by the users' ranks.
        """
        self._earlier, self._left = [(rank, self._pool.of(names)) for rank, names in earlier if names], 0
        for job, plan in list(self.plans.items()):
            if job not in waiting or waiting[job].task != plan.task:
                self.withdraw(job, has_started=False)
        self._classes.clear()  # the workers that serve a class may have changed
        self._displace_held(waiting)
        self._choose(waiting, self.claim_of)
        self._leave_to_users(waiting)
        self._displace_refused(waiting)
        for job in sorted(self._displaced, key=lambda job: waiting[job].turn):
            self._plan_anew(waiting[job], self._displaced.pop(job))
        is_left = self._plan_new(waiting)
        if self.cursor is not None:
            self._pass(waiting)
        self.settle(waiting)
        return is_left or self.cursor is not None

    def finish_step(self, waiting: Mapping[int, WaitingGang]) -> None:
        """Apply which limits are used up at the end of a step, and judge plans beside a change."""
        claiming = set(self.precedence.claims.values())
        self._choose(waiting, lambda one: one.job in claiming)
        self.settle(waiting)

    def settle(self, waiting: Mapping[int, WaitingGang]) -> None:
        """Judge the plans again that are beside a change."""
        for job in sorted(self._judged & self.plans.keys()):
            if not self.plans[job].is_promise:  # a promise remains one
                self._judge(waiting[job])
        self._judged.clear()

    def due(self) -> list[Plan]:
        """Return the plans that are due, the earliest first."""
        found = [job for job, slot in self._slots.items() if slot.start <= self._tick]
        return [self.plans[job] for job in sorted(found, key=lambda job: (self.plans[job].start, job))]

    def next_start(self) -> int | None:
        """Return the next planned start after now; None if there is none."""
        return min((slot.start for slot in self._slots.values() if slot.start > self._tick), default=None)

    def planned_on(self, name: str) -> list[tuple[Plan, Neighbour]]:
        """Return the plans on a worker, by start."""
        jobs = sorted(self._on.get(name, ()), key=self._order)
        return [(self.plans[job], self._neighbour(job)) for job in jobs]

    def _slide(self) -> None:
        """Move the slots of gangs that are due, but have not begun, to now."""
        for job in sorted((job for job, slot in self._slots.items() if slot.start < self._tick), key=self._order):
            slot = self._slots[job]
            self._lift(job)
            self._take_again(job, Slot(self._tick, slot.place), "its workers were not free in time")

    def _displace_held(self, waiting: Mapping[int, WaitingGang]) -> None:
        """Displace the plans of gangs that the order guarantee holds for longer than expected."""
        for job, slot in list(self._slots.items()):
            plan, one = self.plans[job], waiting[job]
            if (one.earliest, one.behind) != (plan.earliest, plan.behind):
                if one.earliest < plan.earliest:
                    self._begin_pass()
                plan.earliest, plan.earliest_p50 = one.earliest, one.half
                plan.is_bounded, plan.behind = one.is_bounded, one.behind
                self._change(plan)
                self._judged.add(job)
            if slot.start < int(one.earliest):
                self._lift(job)
                self._displace(job, "the jobs that it may not pass take longer")

    def claim_of(self, one: WaitingGang) -> int:
        """Return the strength of a gang's claim on its limits: 2 with units set aside, 1 with a plan, otherwise 0.

        Of the gangs whose limits are used up at the end of a step, only those with a claim have a plan.
        """
        plan = self.plans.get(one.job)
        return 0 if plan is None or plan.start is None else 1 + plan.sets_aside

    def _choose(self, waiting: Mapping[int, WaitingGang], claim_of: Callable[[WaitingGang], int]) -> None:
        """Choose the gangs that claim limits, and drop the plans of gangs that must wait."""
        self.precedence.choose(waiting.values(), claim_of, lambda one: self._able_later(self._possible(one)) > 0)
        for job in sorted(self.precedence.barred & self._slots.keys()):
            self._drop_slot(waiting[job], _BARRED)

    def _leave_to_users(self, waiting: Mapping[int, WaitingGang]) -> None:
        """Drop plans of users who come clearly after a user whose tasks wait for the planned workers.

        A user comes clearly later if that was also so before this gang's own use. A promise is kept.
        """
        for job in sorted(self._slots) if self._earlier else ():
            one, plan = waiting[job], self.plans[job]
            waited = 0 if plan.is_promise else self._waited_for(one.turn[0] - one.nodes * one.slots * one.limit_s)
            if waited and self._pool.of(plan.machines) & waited:
                self._drop_slot(one, _LATER)

    def _drop_slot(self, one: WaitingGang, reason: str) -> None:
        """Leave a gang without a start."""
        gang, slot = self._gangs[one.job], self._slots[one.job]
        self._lift(one.job)
        self._note_freed(slot.start, slot.start + gang.limit)
        self._leave(one.job)
        self._displaced.pop(one.job, None)
        self._book(one, self.plans[one.job], gang, None, reason)

    def left_to_users(self) -> list[str]:
        """Return the workers that the last revision left out of plans for tasks of earlier users."""
        return self._pool.names(self._left) if self._left else []

    def _waited_for(self, rank: float) -> Workers:
        """Return the workers that tasks of users before this rank wait for."""
        found = 0
        for earlier, workers in self._earlier:
            found |= workers if earlier < rank else 0
        return found

    def _displace_refused(self, waiting: Mapping[int, WaitingGang]) -> None:
        """Displace plans that are due on a worker that accepts no gang now, because it is silent or distrusted."""
        for plan in self.due():
            refusing = self._pool.of(plan.machines) & ~self._gang(waiting[plan.job]).eligible
            if refusing:
                name = next(name for name in plan.machines if self._pool.of([name]) & refusing)
                self._lift(plan.job)
                lacks = "units that it needs are" if waiting[plan.job].holds_units else f"{name} is"
                self._displace(plan.job, self._horizons.of[name].why or f"{lacks} not free now")

    def _take_again(self, job: int, slot: Slot[Machines], reason: str) -> None:
        """Reserve a lifted slot again, if it is still free; otherwise the plan is displaced."""
        gang = self._gangs[job]
        pieces = self._planner.profile.over(slot.start, slot.start + gang.limit)
        if self._pool.holds(pieces, self._pool.cells(gang, slot.place)):
            self._planner.reserve(gang, slot)
            self._slots[job] = slot
        else:
            self._displace(job, reason)

    def _displace(self, job: int, reason: str) -> None:
        slot = self._slots[job]
        self._note_freed(slot.start, slot.start + self._gangs[job].limit)
        self._leave(job)
        self._displaced[job] = reason

    def _plan_anew(self, waiting: WaitingGang, reason: str) -> None:
        """Plan a displaced gang: at the same start on other workers if possible."""
        plan, gang = self.plans[waiting.job], self._gang(waiting)
        assert plan.start is not None
        start = max(int(plan.start), self._tick, int(waiting.earliest))
        place = self._planner.fits(gang, start)
        slot = Slot(start, place) if place else None
        if slot is not None and self._is_as_good(waiting, plan, slot):
            self._planner.reserve(gang, slot)
        else:
            slot = self._scan(waiting, gang)
        self._book(waiting, plan, gang, slot, reason)

    def _plan_new(self, waiting: Mapping[int, WaitingGang]) -> bool:
        """Plan gangs without a start, within the limit; True if some are left for the next revision."""
        new = [one for one in waiting.values() if self._is_unplanned(one)]
        found = 0
        self._kept.clear()
        for one in sorted(new, key=lambda one: one.turn):
            if one.job in self.precedence.barred:
                self._note_hopeless(one)
                continue
            gang = self._spared(one, self._gang(one))
            if self._planner.fits(gang, self._planner.profile.last) is None:  # each plan may change it
                self._keep_workers(one)
                self._note_hopeless(one)
            elif found == NEW_AT_ONCE:
                return True
            else:
                found += 1
                plan = self.plans.get(one.job)
                self._book(one, plan, gang, self._scan(one, gang), plan.reason if plan else "")
        return False

    def _is_unplanned(self, one: WaitingGang) -> bool:
        plan = self.plans.get(one.job)
        return plan is None or plan.start is None

    def _note_hopeless(self, one: WaitingGang) -> None:
        if one.job not in self.plans:
            plan = self._new_plan(one)
            able = "are expected to have what it needs" if one.holds_units else "that could run it are there"
            is_later = bool(self._waited_for(one.turn[0]) & self._possible(one).eligible)
            reason = _LATER if is_later else f"too few workers {able}"
            plan.reason = _BARRED if one.job in self.precedence.barred else reason
            self._change(plan)

    def _scan(self, waiting: WaitingGang, gang: PlannedGang) -> Slot[Machines] | None:
        """Find the first start by a scan, and reserve the slot. A gang without a limit avoids slots of promises."""
        slot, planner, earliest = None, self._planner, int(waiting.earliest)
        last = planner.profile.last
        for limit, since in ((0, earliest), (max(0, last - self._tick), earliest), (0, max(last, earliest))):
            tried = replace(gang, limit=gang.limit + limit)
            slot = planner.plan(tried, self._tick, self.lattice_of(waiting), since)
            if slot is None or self._spares_promises(waiting, slot):
                break
            planner.lift(tried, slot, self._tick)
        if slot is not None and tried.limit > gang.limit:
            planner.lift(tried, slot, self._tick)
            planner.reserve(gang, slot)
            planner.memory.drop(gang.number)
        return slot

    def _book(
        self, one: WaitingGang, plan: Plan | None, gang: PlannedGang, slot: Slot[Machines] | None, reason: str
    ) -> None:
        """Enter a reserved slot as the plan of a gang, and note the changes."""
        is_new = plan is None or plan.start is None
        if plan is None:
            plan = self._new_plan(one)
        old_start, was_promise = plan.start, plan.is_promise and not is_new
        plan.start, plan.machines = (None, ()) if slot is None else (float(slot.start), slot.place)
        if slot is None:
            self._planner.memory.drop(one.job)
        else:
            self._note(gang, slot)
        self._judge(one)
        if plan.first_start is None:
            plan.first_start, plan.first_p50 = plan.start, plan.p50
        if not is_new:
            self._tell(note_change(plan, old_start, self._now, reason, was_promise=was_promise))
        self._change(plan)

    def _tell(self, broken: BrokenPromise | None) -> None:
        if broken is not None:
            self.broken.append(broken)

    def _new_plan(self, one: WaitingGang) -> Plan:
        plan = self.plans[one.job] = plan_of(one, self._now)
        self.came.append(plan)
        return plan

    def _pass(self, waiting: Mapping[int, WaitingGang]) -> None:
        """Continue the pass over all plans, the earliest first; each may move forward."""
        cursor = self.cursor or _NEVER
        order = sorted((slot.start, job) for job, slot in self._slots.items())
        left = [key for key in order if key > cursor and key[0] > self._tick]
        for _, job in left[:MOVED_AT_ONCE]:
            self._move_forward(waiting[job])
        if len(left) > MOVED_AT_ONCE:
            self.cursor = left[MOVED_AT_ONCE - 1]
        else:
            self.cursor, self.is_due_again = (_NEVER if self.is_due_again else None), False

    def _move_forward(self, one: WaitingGang) -> None:
        job, plan = one.job, self.plans[one.job]
        gang, old = self._spared(one, self._gang(one)), self._slots[one.job]
        new = self._planner.move_forward(gang, old, self._tick, self.lattice_of(one), int(one.earliest))
        if new is old:
            return
        if not self._is_as_good(one, plan, new):
            self._planner.lift(gang, new, self._tick)
            self._planner.reserve(gang, old)
            return
        self._leave(job)
        self._book(one, plan, gang, new, "others have ended")

    def _judge(self, one: WaitingGang) -> None:
        """Set the kind of a plan."""
        plan, slot = self.plans[one.job], self._slots.get(one.job)
        start, around = (None, ()) if slot is None else (slot.start, self._around(one, slot))
        if judge(plan, one, start, around, self._now):
            self._change(plan)

    def _is_as_good(self, one: WaitingGang, plan: Plan, slot: Slot[Machines]) -> bool:
        """True if a promise would remain one, and no other would be delayed."""
        is_kept = not plan.is_promise or is_certain(plan, one, slot.start, self._around(one, slot))
        return is_kept and self._spares_promises(one, slot)

    def _spares_promises(self, one: WaitingGang, slot: Slot[Machines]) -> bool:
        return one.is_given or not delays_a_promise(self._around(one, slot), slot.start, one.slots)

    def _around(self, one: WaitingGang, slot: Slot[Machines]) -> Around:
        found = []
        for name in slot.place:
            others = [job for job in sorted(self._on.get(name, ())) if job != one.job]
            found.append((self._horizons.of[name], [*map(self._neighbour, others)]))
        return found

    def _neighbour(self, job: int) -> Neighbour:
        plan, slot, limit = self.plans[job], self._slots[job], self._gangs[job].limit
        half = slot.start if plan.p50 is None else min(slot.start, int(plan.p50))
        over = slot.start + limit, half + limit
        return Neighbour(slot.start, *over, plan.slots, is_promise=plan.is_promise, is_limited=plan.is_given)

    def _gang(self, one: WaitingGang) -> PlannedGang:
        """Return the gang with the workers that may run it now, and the limit that its plan began with."""
        gang = self._possible(one)
        if one.job in self.precedence.barred:
            return replace(gang, eligible=0, later=())
        return _without(gang, self._rivals_of(one)) if self._needing or one.resources else gang

    def _possible(self, one: WaitingGang) -> PlannedGang:
        """Return the gang with the workers that may run it as soon as no plan is there for the same resources."""
        workers, later = self._classes.get(one.needs) or self._workers_of(one)
        if one.resources and one.behind is not None:
            workers, later = 0, ()  # the jobs that it waits for could need these units
        plan = self.plans.get(one.job)
        limit = steps_of(plan.limit_s if plan else one.limit_s)
        return PlannedGang(one.job, limit, one.nodes, one.slots, workers, later=later, resources=one.resources)

    def _workers_of(self, one: WaitingGang) -> tuple[Workers, Later]:
        """Return the workers of a gang's class that may run it now, and the workers that may run it later."""
        pool, is_open = self._pool, self._horizons.open
        workers = pool.kept(one.needs, self._eligible(one.needs)) & is_open
        more = self.eligible_later(one.needs) if one.resources else {}
        later = tuple((at, pool.of(names) & is_open) for at, names in more.items())
        found = self._classes[one.needs] = workers, later
        return found

    def _rivals_of(self, one: WaitingGang) -> Workers:
        """Return the workers that have a plan for a resource that a gang needs: each has one plan at most for it."""
        return self._pool.of([name for job in self._rival_jobs(one) for name in self._slots[job].place])

    def _rival_jobs(self, one: WaitingGang) -> list[int]:
        of = self._needing
        planned = self._slots if COMPUTER in one.resources else of
        return [job for job in planned if job != one.job and are_rivals(one.resources, of.get(job, ()))]

    def _keep_workers(self, one: WaitingGang) -> None:
        """Keep workers for a gang that has no plan because of other plans for its resources there."""
        if able := self._able_later(self._spared(one, self._possible(one))):
            rivals, names = self._rival_jobs(one), self._pool.names(able)
            plans = {name: [self.plans[job] for job in self._on.get(name, ()) if job in rivals] for name in names}
            self._kept.append((one, self._pool.of(first_without_plans(names, one.nodes, plans))))

    def _able_later(self, gang: PlannedGang) -> Workers:
        """Return the workers that may run a gang once all work and all plans have ended; none if they are too few."""
        last = self._planner.profile.last
        return self._pool.able(self._planner.profile.over(last, last + gang.limit), gang, last)

    def _spared(self, one: WaitingGang, gang: PlannedGang) -> PlannedGang:
        """Return the gang without the workers that rivals keep or earlier users wait for, except its present ones."""
        slot = self._slots.get(one.job)
        if waited := self._waited_for(one.turn[0]) & ~(self._pool.of(slot.place) if slot else 0):
            self._left |= waited & gang.eligible
            gang = _without(gang, waited)
        for other, workers in self._kept:
            if other.job != one.job and are_rivals(one.resources, other.resources):
                gang = _without(gang, workers & ~self._pool.of(slot.place) if slot else workers)
        return gang

    def _enter(self, gang: PlannedGang, slot: Slot[Machines]) -> None:
        self._note(gang, slot)
        self._take_again(gang.number, slot, self._obstacle(gang, slot))

    def _note(self, gang: PlannedGang, slot: Slot[Machines]) -> None:
        """Note a gang's place in the profile."""
        self._slots[gang.number], self._gangs[gang.number] = slot, gang
        for name in slot.place:
            self._on.setdefault(name, set()).add(gang.number)
        if gang.resources:
            self._needing[gang.number] = gang.resources

    def _obstacle(self, gang: PlannedGang, slot: Slot[Machines]) -> str:
        """Return the obstacle to a stored plan: a worker without room for it, and why; empty if all have room."""
        pieces = self._planner.profile.over(slot.start, slot.start + gang.limit)
        for name in sorted(slot.place):
            if not self._pool.holds(pieces, (self._pool.of([name]), gang.slots)):
                return self._horizons.of[name].why or f"what runs on {name} takes longer"
        return ""

    def _lift(self, job: int) -> None:
        self._planner.lift(self._gangs[job], self._slots[job], self._tick)

    def _leave(self, job: int) -> None:
        for name in self._slots.pop(job).place:
            self._on[name].discard(job)
            self._judged |= self._on[name]
        self._needing.pop(job, None)
        del self._gangs[job]

    def _note_freed(self, start: int, end: int | None) -> None:
        self._planner.memory.free(start, self._reach + 1 if end is None else end)
        self._begin_pass()

    def _begin_pass(self) -> None:
        """Begin a pass in this revision, or another one after the pass that is running."""
        if self.cursor in (None, _NEVER):
            self.cursor = _NEVER
        else:
            self.is_due_again = True

    def _order(self, job: int) -> tuple[int, int]:
        return self._slots[job].start, job

    def _change(self, plan: Plan) -> None:
        self.changed[plan.id] = plan


def _without(gang: PlannedGang, workers: Workers) -> PlannedGang:
    """Return a gang that may not run on these workers."""
    later = tuple((at, more & ~workers) for at, more in gang.later)
    return replace(gang, eligible=gang.eligible & ~workers, later=later)
