"""Job sessions: the jobs of one session, which take turns as one job.

Every call of an Executor is a row, but a session is one open job and its calls are its tasks. So all jobs of a
session share one *turn*, their place in a policy's round: the arrival of the session's first job in the grid. Within
the turn, jobs with a task to start come first, in the order of their arrival.

In virtual time a session is a flow of weighted fair queueing, and its jobs are the flow's packets: each is tagged
after the previous one, and the clock counts one sharer until it has passed the last tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from loopline_master.core.kernel.entities import Job, SessionKey
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.index.sorted_collections import IntervalSet, Ranking

Takes = Callable[[RequirementClass], bool]


@dataclass(slots=True)
class JobSession:
    """The live jobs of one session. ``ready`` and ``open`` have arrivals, by requirement class."""

    turn: int
    tags: Ranking[int, tuple[float, int]] = field(default_factory=Ranking)  # of live jobs: (tag, job)
    ready: dict[RequirementClass, IntervalSet] = field(default_factory=dict)  # jobs with a task to start
    open: dict[RequirementClass, IntervalSet] = field(default_factory=dict)  # ... to start or to replicate

    @property
    def last_tag(self) -> float:
        """The finish tag of the session: after it, virtual time has served all its jobs."""
        return self.tags.order[-1][0]

    def first_ready(self, takes: Takes, after: int = 0) -> int | None:
        """Return the first arrival after ``after`` of a job in these classes with a task to start."""
        return _first(self.ready, takes, after)

    def in_turn(self, takes: Takes, *, with_replicas: bool) -> Iterator[int]:
        """Yield the arrivals of jobs of these classes: with a task to start, then with one to replicate.

        They are looked up one by one, since a placement changes them.
        """
        for family in (self.ready, self.open) if with_replicas else (self.ready,):
            arrival = _first(family, takes, 0)
            while arrival is not None:
                yield arrival
                arrival = _first(family, takes, arrival)


class JobSessions:
    """All sessions with a live job, by key and by turn."""

    def __init__(self) -> None:
        self.at: dict[int, JobSession] = {}  # by turn
        self._of: dict[SessionKey, JobSession] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobSessions) and self._of == other._of

    __hash__ = None  # type: ignore[assignment]

    def find(self, key: SessionKey | None) -> JobSession | None:
        """Return the session if it has a live job, else None; ``key`` None: of a job without a session."""
        return self._of.get(key) if key is not None else None

    def place(self, job: Job) -> JobSession:
        """Enter a live job of a session."""
        assert job.session is not None
        session = self._of.get(job.session)
        if session is None:
            session = self._of[job.session] = self.at[job.turn] = JobSession(job.turn)
        session.tags.place(job.id, (job.tag, job.id))
        return session

    def drop(self, job: Job) -> JobSession | None:
        """Drop a job that has left the grid. Return its session; None if it has ended with this job."""
        session = self.find(job.session)
        if session is None:
            return None
        session.tags.place(job.id, None)
        if session.tags.keys:
            return session
        assert job.session is not None
        del self._of[job.session], self.at[session.turn]
        return None


def _first(family: dict[RequirementClass, IntervalSet], takes: Takes, after: int) -> int | None:
    found = (members.first_after(after) for key, members in family.items() if takes(key))
    return min((arrival for arrival in found if arrival is not None), default=None)
