"""Random lives of a grid of two workers, verb by verb. Every start is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from loopline_master.core.events import JobCancelled
from loopline_shared.model import AttemptId, Outcome
from tests.scheduling.driver import Grid

_ROUNDS = 200
VERBS = (
    st.tuples(
        st.just("end"), st.integers(0, 9), st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.GIVEN_BACK])
    ),
    st.tuples(st.just("silence"), st.sampled_from(["ant", "bee"])),
    st.tuples(st.just("restart")),
    st.tuples(st.just("cancel"), st.integers(1, 6)),
)
"""Verbs of every life, with their arguments. Each life has others besides."""


class Life:
    """A life, to be completed with the workers that join, the jobs that come, and the check of a start."""

    def __init__(self, policy: str) -> None:
        self.grid, self.jobs = Grid(policy=policy, max_attempts=3, lease_s=20.0), list[int]()
        self.silent: set[str] = set()
        self.join()

    def workers_join(self) -> None:
        """Have both workers join, or join again."""
        raise NotImplementedError

    def check_starts(self, before: set[AttemptId]) -> None:
        """Assert that the attempts which are not in ``before`` were allowed to start."""
        raise NotImplementedError

    def join(self) -> None:
        self.silent = set()
        for agent in self.grid.agents.values():
            agent.frozen = set()
        self.workers_join()

    def heard(self) -> list[str]:
        return sorted(self.grid.agents.keys() - self.silent)

    def end(self, which: int, outcome: Outcome) -> None:
        there = [attempt for name in self.heard() for attempt in self.grid.agents[name].running]
        if there:
            self.grid.end(there[which % len(there)], outcome)

    def silence(self, name: str) -> None:
        """Let the lease of a worker end, whose tasks run on."""
        self.silent = {name}
        self.grid.now += 50.0
        self.reports()

    def reports(self) -> None:
        for name in self.heard():
            self.grid.report(name)

    def restart(self) -> None:
        self.grid.restart()
        self.join()

    def cancel(self, job: int) -> None:
        self.grid.ask(JobCancelled(job))

    def one_quiet_round(self) -> None:
        self.grid.now += 1.0
        self.end(0, Outcome.SUCCEEDED)
        self.reports()

    def play(self, steps: Sequence[Sequence[Any]]) -> None:
        """Do these steps, and check each."""
        for verb, *what in steps:
            before = set(self.grid.store.attempts)
            getattr(self, verb)(*what)
            self.check_starts(before)

    def run_everything(self) -> None:
        """Let time pass without further events until all jobs have ended; assert that they end."""
        self.play([("join",)])
        for _ in range(_ROUNDS):
            if all(self.grid.job(job).is_over for job in self.jobs):
                return
            self.play([("one_quiet_round",)])
        raise AssertionError(f"not ended: {[job for job in self.jobs if not self.grid.job(job).is_over]}")
