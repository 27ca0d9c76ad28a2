"""Drives a worker's machine by hand, and shows its instructions."""

from __future__ import annotations

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.worker_link import Assign, Run
from loopline_worker.core import instructions as do
from loopline_worker.core.events import Assigned, AttemptEnded, Event, Reported, Restored, Retracted, Returned
from loopline_worker.core.instructions import Instructions
from loopline_worker.core.machine import Machine
from loopline_worker.core.transitions import State

A, B, C = (AttemptId(1, task, 1) for task in (1, 2, 3))


def run(attempt: AttemptId, slots: int = 1) -> Run:
    return Run(attempt, ("true",), {}, {}, slots=slots)


def result(attempt: AttemptId, outcome: Outcome = Outcome.SUCCEEDED) -> Result:
    return Result(attempt, outcome, 0)


def assigned(*runs: AttemptId | Run, cancel: tuple[AttemptId, ...] = (), seen: int = 0) -> Assigned:
    return Assigned(Assign(1, seen, tuple(each if isinstance(each, Run) else run(each) for each in runs), cancel))


def preempted(*attempts: AttemptId) -> Assigned:
    return Assigned(Assign(1, 0, (), attempts, preempt=attempts))


def started(steps: Instructions) -> list[AttemptId]:
    return [each.run.attempt for each in steps.todo if isinstance(each, do.Start)]


def prefetched(steps: Instructions) -> list[AttemptId]:
    return [each.run.attempt for each in steps.todo if isinstance(each, do.Prefetch)]


def killed(steps: Instructions) -> list[AttemptId]:
    return [each.attempt for each in steps.todo if isinstance(each, do.Kill)]


def frozen(steps: Instructions) -> list[AttemptId]:
    return [each.attempt for each in steps.todo if isinstance(each, do.Freeze)]


def thawed(steps: Instructions) -> list[AttemptId]:
    return [each.attempt for each in steps.todo if isinstance(each, do.Thaw)]


def retracts(steps: Instructions) -> bool:
    return do.Retract() in steps.todo


class Driver(Machine):
    """A machine whose steps take no time by default."""

    now = 0.0

    def happens(self, *events: Event, room: int = 0, after_s: float = 0.0) -> Instructions:
        self.now += after_s
        return self.step(events, self.now, room)

    def ends(self, *attempts: AttemptId) -> Instructions:
        return self.happens(*(AttemptEnded(result(attempt)) for attempt in attempts))

    def retracted(self, *returned: AttemptId) -> Instructions:
        return self.happens(Returned(returned), Retracted())

    def restored(self, *results: AttemptId, waiting: tuple[AttemptId, ...] = ()) -> Instructions:
        return self.happens(Restored([result(each) for each in results], (), [run(each) for each in waiting]))

    def reports(self, seq: int) -> tuple[list[AttemptId], list[AttemptId]]:
        """Send a Report; return started attempts, even if ended since then, and those with results."""
        inventory = self.inventory()
        self.happens(Reported(seq, inventory.results))
        return [*inventory.holding, *inventory.delivering], [each.attempt for each in inventory.results]

    def outcomes(self) -> dict[AttemptId, tuple[Outcome, str]]:
        """Return the outcomes in the next Report."""
        return {each.attempt: (each.outcome, each.reason) for each in self.inventory().results}

    @property
    def trouble(self) -> str:
        return self.happens().trouble

    @property
    def waiting(self) -> list[AttemptId]:
        return self.inventory().waiting

    def state(self, attempt: AttemptId) -> State | None:
        found = self.attempts.get(attempt)
        return found.state if found else None
