"""A small world around a plan book: workers join, leave and are claimed, tasks run beside gangs, masters restart.

It has two books side by side: one is kept, the other is rebuilt from the stored plans before each step. They must
always be equal.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

from loopline_master.core.wings.gangs.planning.certainty import may_go_first
from loopline_master.core.wings.gangs.planning.horizon import Busy, Horizon
from loopline_master.core.wings.gangs.planning.plan import (
    BrokenPromise,
    Plan,
    WaitingGang,
    in_order_of_claims,
    steps_of,
)
from loopline_master.core.wings.gangs.planning.plan_book import PlanBook
from loopline_master.core.wings.gangs.planning.scans.lattice import Lattice


@dataclass
class Running:
    """An attempt on a worker: it really ends at ``ends``; the plan book expects ``busy.end``."""

    busy: Busy
    ends: int
    job: int = 0  # of a gang's member


@dataclass
class Computer:
    slots: int
    offered: int
    is_here: bool = True
    runs: list[Running] = field(default_factory=list)

    def horizon(self, name: str) -> Horizon:
        busy = tuple(one.busy for one in self.runs)
        if not self.is_here:
            return Horizon(0, is_open=False, why=f"{name} was lost")
        why = f"its owner has taken {name}" if self.offered < self.slots else ""
        return Horizon(self.offered, is_open=True, busy=busy, why=why)

    @property
    def free(self) -> int:
        return self.offered - sum(one.busy.slots for one in self.runs) if self.is_here else 0


class PlanWorld:
    def __init__(self, slots: list[int], lattice: Lattice) -> None:
        self.now = 1000
        self.computers = {f"w{number:02}": Computer(many, many) for number, many in enumerate(slots)}
        self.lattice = lattice
        self.waiting: dict[int, WaitingGang] = {}
        self.runs_for: dict[int, int] = {}
        self.rows: dict[int, Plan] = {}
        self.cursor: tuple[tuple[int, int] | None, bool] = (None, False)
        self.broken: list[BrokenPromise] = []
        self.starts: dict[int, int] = {}
        self.book = self._book()
        for name in self.computers:
            self._tell(self.book, name)
        self.book.revise(self.waiting)
        self._keep()
        self.fresh = self._book()

    def arrive(
        self,
        nodes: int,
        slots: int,
        limit: int,
        runs: int,
        *,
        held_until: int = 0,
        is_bounded: bool = True,
        is_given: bool = True,
    ) -> None:
        job = len(self.runs_for) + 1
        self.runs_for[job] = runs
        earliest = self.now + held_until if held_until else 0
        self.waiting[job] = WaitingGang(
            job, 1, nodes, slots, float(limit), is_given, "any", (0.0, 0.0, job), earliest, earliest, is_bounded
        )

    def start_task(self, name: str, slots: int, lasts: int, runs: int, *, is_limited: bool) -> bool:
        """Start an ordinary task beside the gangs, if it delays none of them."""
        computer = self.computers[name]
        end, half = self.now + lasts, self.now + max(1, lasts // 2)
        if computer.free < slots:
            return False
        limit = end if is_limited else None
        if not may_go_first(computer.horizon(name), self.book.planned_on(name), slots, self.now, limit, end):
            return False
        ends = self.now + (min(runs, lasts) if is_limited else runs)
        busy = Busy(slots, end, end if is_limited else half, is_limited, "a task")
        computer.runs.append(Running(busy, ends))
        return True

    def pass_time(self, seconds: int) -> None:
        """Advance the clock by this many seconds, with a step whenever a gang is due."""
        until = self.now + seconds
        while True:
            due = self.book.next_start()
            self.step(until if due is None else min(until, due))
            if self.now >= until:
                return

    def step(self, now: int) -> None:
        """End finished attempts, start due gangs, and revise both books."""
        self.now = now
        for computer in self.computers.values():
            computer.runs = [one for one in computer.runs if one.ends > self.now and computer.is_here]
            for one in computer.runs:
                if one.busy.end <= self.now:  # it takes longer than expected
                    busy = one.busy
                    one.busy = Busy(busy.slots, self.now + 5, self.now + 5, busy.is_limited, busy.name)
        fresh = self.fresh
        for book in (fresh, self.book):
            book.begin(self.now)
            for name in self.computers:
                self._tell(book, name)
            self.is_left = book.revise(self.waiting)
        assert fresh.plans == self.book.plans, (fresh.plans, self.book.plans)
        assert fresh.broken == self.book.broken
        assert (fresh.cursor, fresh.is_due_again) == (self.book.cursor, self.book.is_due_again)
        assert fresh.next_start() == self.book.next_start()
        assert [fresh.planned_on(name) for name in self.computers] == [
            self.book.planned_on(name) for name in self.computers
        ]
        self._begin()
        self.book.settle(self.waiting)
        self._keep()
        self.fresh = self._book()

    def cancel(self, job: int) -> None:
        if self.waiting.pop(job, None) and job in self.book.plans:
            for book in (self.book, self.fresh):
                book.withdraw(job, has_started=False)
                book.settle(self.waiting)

    def _begin(self) -> None:
        for plan in self.book.due():
            if all(self.computers[name].free >= plan.slots for name in plan.machines):
                steps = steps_of(plan.limit_s)
                for name in plan.machines:
                    busy = Busy(plan.slots, self.now + steps, self.now + steps, plan.is_given, f"job {plan.job}")
                    runs = Running(busy, self.now + self.runs_for[plan.job], plan.job)
                    self.computers[name].runs.append(runs)
                del self.waiting[plan.job]
                self.starts[plan.job] = self.now
                self.book.withdraw(plan.job, has_started=True)
                for name in plan.machines:
                    self._tell(self.book, name)

    def _book(self) -> PlanBook:
        """Rebuild a book from the rows, as a restart does."""
        book = PlanBook(self.now, lambda needs: self.computers)
        book.lattice_of = lambda waiting: self.lattice
        book.begin(self.now)
        for name in self.computers:
            self._tell(book, name)
        for plan in sorted(self.rows.values(), key=in_order_of_claims):
            if plan.job in self.waiting:
                book.restore(copy(plan), self.waiting[plan.job])
        book.cursor, book.is_due_again = self.cursor
        return book

    def _tell(self, book: PlanBook, name: str) -> None:
        book.set_horizon(name, self.computers[name].horizon(name), f"switch {int(name[1:]) % 3}")

    def _keep(self) -> None:
        self.rows = {job: copy(plan) for job, plan in self.book.plans.items()}
        self.cursor = self.book.cursor, self.book.is_due_again
        self.broken += self.book.broken
        self.book.broken.clear()
        self.book.changed.clear()
