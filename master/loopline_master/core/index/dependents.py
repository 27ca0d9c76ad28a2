"""Who waits for whom: the jobs of a chain that are not yet in the grid, by those that must succeed before."""

from __future__ import annotations

from collections.abc import Iterable


class Waiting:
    """A function of the waiting jobs alone: whom they wait for may have left the scheduler's memory long ago."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, ...]] = {}  # that wait, and for whom
        self._followers: dict[int, set[int]] = {}  # the reverse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Waiting) and self.jobs == other.jobs

    __hash__ = None  # type: ignore[assignment]

    def place(self, job: int, waits_for: tuple[int, ...]) -> None:
        """Enter a job as it is now; empty: it waits for nobody."""
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
        """Those that wait for this job, in the order of their submission."""
        return sorted(self._followers.get(job, ()))

    def each(self) -> list[tuple[int, tuple[int, ...]]]:
        """Those that wait, in the order of their submission, with whom each waits for."""
        return sorted(self.jobs.items())

    def _drop(self, job: int, leaders: Iterable[int]) -> None:
        for one in leaders:
            self._followers[one].discard(job)
            if not self._followers[one]:
                del self._followers[one]
