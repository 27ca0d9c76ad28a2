"""Round robin equals the paper's Figure 1, assignment by assignment, if workers become idle one at a time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_shared.model import AttemptId, AttemptState, Outcome
from tests.campaign import PATIENT, tried
from tests.scheduling.driver import Grid, facts
from tests.scheduling.figure1 import Figure1

WORKERS = ["a", "b", "c", "d", "e"]
submissions = st.tuples(st.just("submit"), st.sampled_from([1.0, 2.0, 2.0, 3.0]), st.integers(1, 5))
ends = st.tuples(st.sampled_from(["complete", "complete", "complete", "fail", "lose"]), st.integers(0, 4), st.none())
workloads = st.lists(st.one_of(submissions, ends, ends, ends), max_size=60)


class Both:
    """The scheduler and the oracle side by side."""

    def __init__(self, limit: int | None, workers: list[str]) -> None:
        self.grid = Grid(policy="round-robin", max_replicas=limit, max_attempts=1000, lease_s=1e9, quarantine_s=0.0)
        self.oracle = Figure1(limit)
        self.idle: list[str] = []
        self.dying: list[AttemptId] = []  # losing attempts, in the order of their confirmations
        for name in workers:
            self.grid.join(name, facts(1), reports=False)
            self.grid.report(name)
            self.idle.append(name)

    def submit(self, size: float, tasks: int) -> None:
        job = self.grid.submit(tasks, size)
        self.oracle.submit(job, size, tasks)
        self._compare()

    def end(self, verb: str, which: int) -> None:
        busy = sorted(name for name in self.grid.agents if self.grid.running(name))
        if not busy:
            return
        name = busy[which % len(busy)]
        attempt = self.grid.running(name)[0]
        self.idle.append(name)
        if verb == "complete":
            losers = [a for a in self.grid.attempts_of(attempt.task_id) if a != attempt]
            self.oracle.complete(attempt.job, attempt.task)
            self.grid.end(attempt)
            self._compare()
            for loser in losers:
                self._confirm(loser)
        else:
            self.oracle.drop_instance(attempt.job, attempt.task, name)
            self.grid.end(attempt, Outcome.FAILED if verb == "fail" else Outcome.GIVEN_BACK)
            self._compare()

    def finish(self) -> None:
        while self.oracle.queues:
            self.end("complete", 0)
        assert not self.grid.scheduler.state.index.live

    def _confirm(self, loser: AttemptId) -> None:
        name = next(name for name, agent in self.grid.agents.items() if loser in agent.killed)
        self.idle.append(name)
        self.grid.report(name)
        self._compare()

    def _compare(self) -> None:
        started = [
            (a.worker, a.job, a.task) for a in self.grid.last.attempts.values() if a.state is AttemptState.DISPATCHED
        ]
        expected = []
        for name in sorted(self.idle):
            assigned = self.oracle.assign(name)
            if assigned is not None:
                expected.append((name, *assigned))
                self.idle.remove(name)
        assert started == expected


@settings(PATIENT, max_examples=tried(20, 1000))
@given(limit=st.sampled_from([None, None, 2, 1]), workers=st.integers(1, 5), workload=workloads)
def test_every_assignment_equals_figure_1(
    limit: int | None, workers: int, workload: list[tuple[str, float, int | None]]
) -> None:
    both = Both(limit, WORKERS[:workers])
    for verb, first, second in workload:
        if verb == "submit":
            both.submit(first, second or 1)
        else:
            both.end(verb, int(first))
    both.finish()
