"""Units: the counts of the wing *resources*, as the requirement index queries them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from math import inf

from loopline_master.core.kernel.entities import Needs
from loopline_shared.model import AttemptId
from loopline_shared.protocol.gpus import GpuKind

ResourceNeeds = tuple[tuple[str, int, GpuKind], ...]
"""Units of a worker's resources that each attempt holds; only GPUs have kinds, others ANY_GPU."""

NeedPart = tuple[int, GpuKind]
"""The part of ``ResourceNeeds`` that concerns one resource."""

RequirementClass = tuple[
    str | None, int, frozenset[str], int, bool, str | None, str, str, int, str, ResourceNeeds, Needs, int
]
"""What jobs of one user ask of a worker, and the units that each of their attempts holds (requirements.py)."""

Promised = Mapping[tuple[str, str], int]
"""Units of limits, by limit and user; an empty user stands for all users."""

Turn = tuple[float, float, int]
"""Place of a job in the order of turns: use of its user, tag under the policy fair, and turn."""

Holders = Sequence[tuple[AttemptId, int]]
"""Attempts that hold units of a limit, and these units."""


class Units:
    """The units that attempts hold while they may be running. Here nothing is counted, and nothing runs out."""

    limits: Collection[str] = ()
    """Names of the grid's limits; a need of any other name is a need of a worker's resource."""
    kept: Collection[str] = ()
    """Workers with resources that are kept for one class."""
    of_gangs: Mapping[str, Turn] = {}
    """Limits that gangs lack, with the first turn of these gangs; before all turns if one of them has a plan."""
    of_wide: Mapping[str, Turn] = {}
    """Limits that wide tasks need, but must leave to others first, with the first turn of these tasks."""

    def most(self, name: str, user: str) -> int | None:
        """Return the smallest limit of these units for a user; None if there is none."""
        return None

    def are_out(self, key: RequirementClass) -> bool:
        """True if no further attempt of the class may start now, on any worker."""
        return False

    def spare(self, of: str | int, user: str) -> float:
        """Return the units of a limit, or of a job's own, that a user may still take, without those set aside."""
        return inf

    def starts_left(self, key: RequirementClass, promised: Promised) -> float:
        """Return the number of attempts of the class that limits let start now; infinity if it has none.

        ``promised``: units that attempts of other jobs will take first.
        """
        return inf

    def is_short(self, worker: str, key: RequirementClass) -> bool:
        """True if too little of the worker's resources is left for an attempt of the class."""
        return False

    def lacks(self, worker: str, needs: ResourceNeeds) -> bool:
        """True if too little of the worker's resources is left for these needs, even if no units are kept."""
        return False

    def are_too_few(self, worker: str, key: RequirementClass, other: RequirementClass) -> bool:
        """True if an attempt of one class may take units of the worker's resources that the other needs, too."""
        return False

    def is_first(self, worker: str) -> bool:
        """True unless another worker, earlier by name, offers one of its GPUs."""
        return True

    def offering(self, gpus: Iterable[str]) -> Collection[str]:
        """Return the workers that offer one of these GPUs."""
        return ()

    def left_of(self, worker: str, name: str) -> Hashable:
        """Return what is left of a worker's resource: workers with equal answers lack it for the same needs."""
        return None

    def would_suffice(self, worker: str, key: RequirementClass) -> bool:
        """True if the resources that the worker does not withhold suffice for an attempt once all are free."""
        return True

    def free_after(self, worker: str, key: RequirementClass, left_s: Mapping[AttemptId, float]) -> float:
        """Return the time until the worker's resources suffice for an attempt of the class, in seconds.

        ``left_s``: the time until each attempt on the worker ends; infinity if it is not known.
        """
        return 0.0

    def keep(self, worker: str, key: RequirementClass | None, names: Collection[str]) -> None:
        """Keep these resources of a worker for attempts of this class; None: for none any more."""

    def set_aside(self, key: RequirementClass, *, ends: bool = False) -> None:
        """Set the units of limits aside that one attempt of this class needs, or end that."""

    def aside_for(self, of: str | int) -> RequirementClass | None:
        """Return the class that has units of a limit set aside; None if there is none."""
        return None

    def are_set_aside(self, key: RequirementClass) -> bool:
        """True if units of one of its limits are set aside for another class."""
        return False

    def wait_for_limits(self, key: RequirementClass) -> bool:
        """True if its units are out, and will not be once attempts that hold units of its limits have ended."""
        return False

    def shortages(self, key: RequirementClass) -> Iterable[tuple[int, Holders]]:
        """Return the units that an attempt of the class lacks of each limit, and that limit's holders."""
        return ()


NO_UNITS = Units()


def time_until(missing: int, ends: Iterable[tuple[float, int]]) -> float:
    """Return the time until this many units are free, in seconds; infinity if that is not expected.

    ``ends``: the time until each attempt ends, and the units that it has.
    """
    free_s = 0.0
    for left_s, units in sorted(ends):
        if missing <= 0:
            return free_s
        if units:
            missing, free_s = missing - units, left_s
    return free_s if missing <= 0 else inf
