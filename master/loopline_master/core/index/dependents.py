"""Jobs that wait outside the grid for their dependencies, by the jobs that must succeed before them."""

from __future__ import annotations

from collections.abc import Iterable


class Dependents:
    """A function of the waiting jobs alone: their dependencies may have left the scheduler's memory long ago."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, ...]] = {}  # that wait, and for whom
        self._followers: dict[int, set[int]] = {}  # the reverse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dependents) and self.jobs == other.jobs

    __hash__ = None  # type: ignore[assignment]

    def place(self, job: int, waits_for: tuple[int, ...]) -> None:
        """Enter a job as it is now; it leaves if ``waits_for`` is empty."""
        before = self.jobs.get(job, ())
        if before == waits_for:
            return
        self._drop(job, set(before).difference(waits_for))
        for one in set(waits_for).difference(before):
            self._followers.setdefault(one, set()).add(job)
        if waits_for:
            self.jobs[job] = waits_for
        else:
            del self.jobs[job]

    def followers(self, job: int) -> list[int]:
        """Return the jobs that wait for this one, in the order of their submission."""
        return sorted(self._followers.get(job, ()))

    def each(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return all waiting jobs in the order of their submission, each with the jobs it waits for."""
        return sorted(self.jobs.items())

    def _drop(self, job: int, leaders: Iterable[int]) -> None:
        for one in leaders:
            self._followers[one].discard(job)
            if not self._followers[one]:
                del self._followers[one]
