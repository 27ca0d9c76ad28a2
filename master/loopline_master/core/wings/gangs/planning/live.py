"""Planning in the live scheduler: keeps the plan book consistent with the entities, and its rows with the book.

A grid without a waiting gang has no book and no cost. A book is made from the rows whenever one is needed, and kept
up to date from then on: both decide the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from loopline_master.core.estimates import measure
from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.index.requirement_class import resources_of
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.gangs.planning import certainty
from loopline_master.core.wings.gangs.planning.gang_units import GangUnits
from loopline_master.core.wings.gangs.planning.grid_horizons import (
    P90,
    horizon_of,
    is_foreseeable,
    limit_of,
    order_of,
    switch_of,
)
from loopline_master.core.wings.gangs.planning.horizon import Horizon, end_by_limit, rounded
from loopline_master.core.wings.gangs.planning.plan import (
    BROKEN,
    Plan,
    WaitingGang,
    in_order_of_claims,
    steps_of,
)
from loopline_master.core.wings.gangs.planning.plan_book import PlanBook
from loopline_master.core.wings.gangs.planning.precedence import workers_by_rank
from loopline_master.core.wings.gangs.planning.scans.lattice import Lattice
from loopline_master.core.wings.gangs.planning.scans.scan_algorithms import Algorithm, ScanContext, algorithm

_STEPS_OF_A_LIMIT = 10
"""The rack paper's times are steps, about ten to a job: a mean limit is this many steps long."""
_LATE_S = 5.0
"""A gang that is due, but whose workers are not free yet, is checked again after this time."""
_RESPITE_S = 10.0
"""A job that holds a gang back longer than expected is given this much longer at a time."""


class Planning:
    """Planner of a scheduler's gangs; ``State`` holds it."""

    def __init__(self, state: State) -> None:
        self.is_left = False  # a revision was not finished: step again soon
        self._state, self._plans = state, state.own(GangMemory).plans
        self.book: PlanBook | None = None
        """Plans in hand, if any: the book must see every step, or be dropped."""
        self._units = GangUnits(state)
        self._waiting: dict[int, WaitingGang] = {}
        self._backlog_s = 0.0  # slot-seconds of the waiting gangs, by their limits
        self._silent: set[str] = set()  # silent workers that keep their plans until their leases end
        self._rows_of = state.grid.now  # time of the rows that the scheduler was started with

    @property
    def wake_at(self) -> float | None:
        """Time when a gang is due to start, or a revision continues; None if there is no such time."""
        if self.book is None:
            return None
        if self.is_left:
            return self._state.now
        late = self._state.now + _LATE_S if self.book.due() else math.inf
        start = min(self.book.next_start() or math.inf, late)
        return None if start == math.inf else start

    def open(self) -> None:
        """Make the book from the rows, if a gang waits: before the next event, as it was in the previous step.

        The time of that step is used as well: a lease that ended while the master was away loses no worker.
        """
        state, grid = self._state, self._state.grid
        self._units.restore(self._plans.values())
        if self.book is None and (state.index.parallel or self._plans):
            now, grid.now = grid.now, self._rows_of
            self.book = self._made()
            grid.now = now

    def revise(self) -> None:
        """Bring the plans up to date with the changes of this step."""
        state = self._state
        if not state.index.parallel and not self._plans:
            self.book, self.is_left = None, False
            self._units.release({})
            self._units.note_turns({})
            return
        self._note_ended()
        if self.book is None:
            book = self.book = self._made()
        else:
            book = self.book
            book.begin(state.now)
            self._take_in(book, self._all_touched(book))
        self._waiting = self._gangs(book)
        self._backlog_s = math.fsum(one.nodes * one.slots * one.limit_s for one in self._waiting.values())
        self.is_left = book.revise(self._waiting, self._earlier_users())
        self._units.note_turns(book.precedence.turns())
        self._units.release(book.plans)
        self._store(book)

    def _earlier_users(self) -> list[tuple[float, set[str]]]:
        """Return the workers that users' tasks wait for, by the users' ranks, if some gang's user is a later one."""
        latest = max((one.turn[0] for one in self._waiting.values()), default=0.0)
        return [*workers_by_rank(self._state, latest, self._touched)]

    def due(self) -> Iterator[tuple[Plan, Job, list[Worker]]]:
        """Yield the due gangs whose workers all have the slots free, and set aside the units that others lack.

        If a gang starts, units are set aside in the next step: its start may allow plans of other gangs.
        """
        state, book = self._state, self.book
        lacking, has_started = list[tuple[Plan, Job]](), False
        for plan in book.due() if book is not None else ():
            job, workers = state.jobs[plan.job], [state.workers[name] for name in plan.machines]
            if state.index.is_held(job) or not all(self._is_free(plan, job, worker) for worker in workers):
                continue
            if not self._units.has_limits(job):
                lacking.append((plan, job))
                continue
            has_started |= job.holds_units
            yield plan, job, workers
        if not has_started:
            for plan, job in sorted(lacking, key=lambda one: self._waiting[one[1].id].turn):
                self._units.try_to_set_aside(plan, job)

    def note_started(self, plan: Plan) -> None:
        """Note that a gang has begun: its slots are now in use."""
        book = self.book
        assert book is not None
        book.withdraw(plan.job, has_started=True)
        book.precedence.note_started(plan.job)
        self._units.note_turns(book.precedence.turns())
        self._units.note_started(plan, self._state.jobs[plan.job])
        self._units.release(book.plans)
        del self._waiting[plan.job]
        self._take_in(book, plan.machines)
        self.is_left = True  # the next gang of its job may be planned now

    def finish_step(self) -> None:
        """Apply the step's changes since the revision, and store its changes of the plans."""
        if self.book is not None:
            self._take_in(self.book, self._touched())
            claiming = {*self.book.precedence.claims.values()}
            for number, one in self._waiting.items():
                self._waiting[number] = self._with_lacks(one, has_claim=number in claiming)
            self.book.finish_step(self._waiting)
            idle = self._state.index.slots.idle.keys  # if left to tasks that have not started there, a gang may
            self.is_left |= self.book.cursor is not None or any(name in idle for name in self.book.left_to_users())
            self._store(self.book)

    def _with_lacks(self, one: WaitingGang, *, has_claim: bool) -> WaitingGang:
        """Return a waiting gang with the limits that it lacks now. With a claim it need not pass wide tasks."""
        if not one.holds_units:
            return one
        lacks, must_pass = self._units.lacks(self._state.index.requirements.key_of(self._state.jobs[one.job]))
        if lacks and not has_claim:
            must_pass |= self._units.must_leave(lacks, one.turn)
        return (
            one
            if (lacks, must_pass) == (one.lacks, one.must_pass)
            else replace(one, lacks=lacks, must_pass=must_pass)
        )

    def may_go_first(self, job: Job, number: int, worker: Worker) -> bool:
        """True if the task, started on this worker now, delays no gang that is planned there.

        A held gang is no obstacle to an earlier job's task, because it may be waiting for that very task; a replica
        must wait nevertheless.
        """
        book, jobs = self.book, self._state.jobs
        is_replica = job.task_id(number) in self._state.index.attempts.alive
        plans = [
            (plan, near)
            for plan, near in (book.planned_on(worker.name) if book is not None else ())
            if plan.behind is None or is_replica or jobs[plan.job].arrival < job.arrival
        ]
        if not plans:
            return True
        state = self._state
        now = int(state.now)
        expected_s = measure.work_of(state.grid, job, number) / (
            measure.speed_for(worker, job, state.programs) * job.nodes
        )
        limit_s, limit = job.spec.timeout_s, None
        if limit_s is not None:
            limit = end_by_limit(now, limit_s) if job.nodes == 1 else now + steps_of(limit_s)
        p90 = rounded(now, P90 * expected_s)
        rivals = self._units.rivals(job, worker, (plan for plan, _ in plans))
        slots = job.slots_on(worker)
        return certainty.may_go_first(horizon_of(state, worker), plans, slots, now, limit, p90, rivals)

    def is_planned_on(self, name: str) -> bool:
        """True if some gang is planned to run on the worker."""
        return self.book is not None and bool(self.book.planned_on(name))

    def _made(self) -> PlanBook:
        """Make a book from the rows."""
        state = self._state
        book = PlanBook(state.now, self._units.eligible)
        book.lattice_of, book.eligible_later = self._lattice, self._units.eligible_later
        book.begin(state.now)
        self._silent.clear()  # some of its workers may have been forgotten since the last book
        book.enter(self._entry_of(state.workers[name]) for name in sorted(state.workers))
        waiting = self._gangs(book)
        for plan in sorted(self._plans.values(), key=in_order_of_claims):
            if plan.job in waiting:
                book.restore(plan, waiting[plan.job])
            else:
                book.plans[plan.job] = plan
        grid = state.grid
        book.cursor = None if grid.plan_cursor is None else (grid.plan_cursor, grid.plan_cursor_job)
        book.is_due_again = grid.plan_again
        return book

    def _all_touched(self, book: PlanBook) -> set[str]:
        """Return the workers whose horizons may have changed: in this step, or because some work took too long."""
        workers, now = self._state.workers, self._state.now
        silent = {name for name in self._silent if workers[name].lease_until <= now}
        return (self._touched() | silent | set(book.overdue())) & workers.keys()

    def _touched(self) -> set[str]:
        effects = self._state.effects
        return {*effects.workers, *(attempt.worker for attempt in effects.attempts.values())}

    def _take_in(self, book: PlanBook, names: Iterable[str]) -> None:
        for name in sorted(names):
            self._set(book, self._state.workers[name])

    def _set(self, book: PlanBook, worker: Worker) -> None:
        book.set_horizon(*self._entry_of(worker))

    def _entry_of(self, worker: Worker) -> tuple[str, Horizon, str]:
        """Return a worker's entry in a book; note the worker if it is silent."""
        horizon = horizon_of(self._state, worker)
        if worker.session is None and horizon.slots:
            self._silent.add(worker.name)
        else:
            self._silent.discard(worker.name)
        return worker.name, horizon, switch_of(worker.facts)

    def _gangs(self, book: PlanBook) -> dict[int, WaitingGang]:
        """Return the waiting gangs, the next one of each job.

        Gangs of the user who has used least for their share are planned first; existing plans stay where they are.
        """
        state, found = self._state, {}
        for arrival in state.index.parallel:
            job = state.index.live[arrival]
            number = state.index.ready_sets[job.id].to_retry.first_after(0) or state.fresh[job.id].first_after(0)
            assert number is not None  # otherwise it would not be there
            is_new = job.id not in book.plans and job.id not in self._plans
            if is_new and state.index.is_held(job) and not is_foreseeable(state, job, book.plans):
                continue  # the jobs that it waits for could need any slots that it kept
            one = self._gang(book, job, number, state.turn_of(job))
            found[job.id] = self._with_lacks(one, has_claim=book.claim_of(one) > 0)
        return found

    def _gang(self, book: PlanBook, job: Job, number: int, turn: tuple[float, float, int]) -> WaitingGang:
        state, known = self._state, self._waiting.get(job.id)
        is_held, needs = state.index.is_held(job), state.index.requirements.key_of(job)
        if (
            known is not None
            and known.needs is needs
            and known.task == number
            and known.behind is None
            and not is_held
            and job.id in book.plans
        ):
            return known if known.turn == turn else replace(known, turn=turn)
        plan = book.plans.get(job.id) or self._plans.get(job.id)
        if plan is not None and plan.task == number:
            limit_s, is_given = plan.limit_s, plan.is_given  # even if the prediction has changed since
        else:
            limit_s, is_given = limit_of(state, job, number)
        earliest, half, is_bounded, behind = 0.0, 0.0, True, None
        if is_held:
            behind = state.index.hold_over(job).first(job.arrival, job.weight)
            if plan is not None and plan.behind == behind and plan.earliest > state.now:
                earliest, half, is_bounded = plan.earliest, plan.earliest_p50, plan.is_bounded
            else:
                earliest, half, is_bounded = order_of(state, job, book.plans)
                if earliest <= state.now:
                    earliest = state.now + _RESPITE_S
        return WaitingGang(
            job=job.id,
            task=number,
            nodes=job.nodes,
            slots=job.slots,
            limit_s=limit_s,
            is_given=is_given,
            needs=needs,
            turn=turn,
            earliest=earliest,
            half=half,
            is_bounded=is_bounded and not job.holds_units,
            behind=behind,
            holds_units=job.holds_units,
            resources=frozenset(name for name, _, _ in resources_of(needs)),
        )

    def _is_free(self, plan: Plan, job: Job, worker: Worker) -> bool:
        index = self._state.index
        key = index.requirements.key_of(job)
        if not worker.is_available or worker.name not in index.requirements.with_resources(key):
            return False
        if index.on_worker(job.task_id(plan.task), worker.name):
            return False
        return worker.offered - index.attempts.in_hand(worker.name) >= plan.slots

    def _lattice(self, waiting: WaitingGang) -> Lattice:
        """Return the times to try for a gang, in steps of about a tenth of the gangs' mean limit."""
        grid = self._state.grid
        mean_s = grid.gang_limits_s / grid.gangs_came if grid.gangs_came else waiting.limit_s
        used = grid.gang_ran_s / grid.gang_allowed_s if grid.gang_allowed_s else 1.0
        slots = sum(self._state.index.requirements.reliable.values())
        job = self._state.jobs[waiting.job]
        waited = (self._state.now - (job.entered_at or job.submitted_at)) / max(1.0, mean_s)
        step = 1 << max(0, int(mean_s / _STEPS_OF_A_LIMIT).bit_length() - 1)
        context = ScanContext(self._backlog_s / max(1, slots) / step, used, waited)
        return _named(self._state.settings.plan_times).lattice(context).scaled(step)

    def _note_ended(self) -> None:
        """Count the used part of the limits of gangs that have ended."""
        state, grid = self._state, self._state.grid
        for attempt in state.effects.attempts.values():
            job = state.jobs.get(attempt.job)
            if job is None or job.nodes == 1 or attempt.ended_at != state.now or attempt.started_at is None:
                continue
            grid.gang_ran_s += attempt.ended_at - attempt.started_at
            grid.gang_allowed_s += limit_of(state, job, attempt.task)[0]

    def _store(self, book: PlanBook) -> None:
        """Put the rows of changed plans, and note the progress of the pass."""
        state, grid = self._state, self._state.grid
        for plan in book.came:
            grid.gangs_came += 1
            grid.gang_limits_s += plan.limit_s
        for plan in book.changed.values():
            state.put(plan)
            for name in () if plan.is_over else plan.machines:
                lifecycle.retract_from(state, state.workers[name], "a gang is planned to start there")
        book.came.clear()
        book.changed.clear()
        for one in book.broken:
            notify = state.jobs[one.job].spec.notify
            is_notified = notify is not None and BROKEN in notify.on
            state.effects.tell(replace(one, number=state.next_sequence(), is_notified=is_notified))
        book.broken.clear()
        before = grid.plan_cursor, grid.plan_cursor_job, grid.plan_again
        grid.plan_cursor, grid.plan_cursor_job = (None, 0) if book.cursor is None else book.cursor
        grid.plan_again = book.is_due_again
        if before != (grid.plan_cursor, grid.plan_cursor_job, grid.plan_again) and state.index.parallel:
            job = state.index.live[next(iter(state.index.parallel))]
            state.put(job)  # even if unchanged: a step without effects is not in the log


@lru_cache(maxsize=16)
def _named(name: str) -> Algorithm:
    return algorithm(name)
