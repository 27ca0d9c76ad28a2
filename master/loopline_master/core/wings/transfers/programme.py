"""Rates of pipelines, described as a linear programme (Takahashi et al., section 3.3).

Maximise the sum of rate x receivers, so that no direction of a link exceeds its capacity, and no pipeline that has
waited too long gets less than its floor. This file only describes the programme: it is solved by a solver of linear
programmes (outside the core), or by ``filling.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loopline_master.core.wings.transfers.network import Network

Term = tuple[int, int]
"""A pipeline's number, and how often it uses the direction."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """The rates of the pipelines that use a direction, each times its uses, are together at most ``limit``."""

    limit: float  # bytes per second
    terms: tuple[Term, ...]


Follow = tuple[int, int, float]
"""Numbers of a follower, and of the pipeline ahead of it; and the follower's slack, in bytes per second."""


@dataclass(frozen=True, slots=True)
class LinearProgramme:
    """A rate for each pipeline, in bytes per second: maximise ``sum(weight * rate)``.

    Floors can always be met. Constraints have at least one term, and no two have the same terms. A pipeline whose
    source is a receiver of another one *follows* it: it is at most as fast, or faster by its *slack* as long as the
    source has a lead, and its floor is at most as high.
    """

    weights: tuple[float, ...]  # receivers of each pipeline
    floors: tuple[float, ...]  # least rate of each
    constraints: tuple[Constraint, ...]
    follows: tuple[Follow, ...] = ()

    def objective(self, rates: Sequence[float]) -> float:
        """Return the throughput at which data arrives at all receivers together, in bytes per second."""
        return sum(weight * rate for weight, rate in zip(self.weights, rates, strict=True))


Solve = Callable[[LinearProgramme], Sequence[float]]
"""Return the rates, each at least its floor, that keep the constraints: the best, or those of another rule."""

Share = Callable[[LinearProgramme, Sequence[float]], Sequence[float]]
"""Return rates as good as the given ones, which are the best, where no pipeline waits for others needlessly."""


def programme(
    network: Network,
    uses: Sequence[dict[int, int]],
    weights: Sequence[int],
    asked: Sequence[float],
    follows: tuple[Follow, ...] = (),
) -> LinearProgramme:
    """Return the programme of pipelines, given each one's uses of each direction.

    ``asked`` is the minimum rate wanted for each. If a direction cannot carry the sum, each pipeline
    that wants a rate has an equal share of the direction as its floor. In ``follows``, a pipeline comes after the
    pipeline that it follows.
    """
    terms: dict[int, list[Term]] = {}
    for number, use in enumerate(uses):
        for direction, count in use.items():
            terms.setdefault(direction, []).append((number, count))
    least: dict[tuple[Term, ...], float] = {}
    for direction, found in terms.items():
        key = tuple(found)
        least[key] = min(network.limits[direction], least.get(key, network.limits[direction]))
    constraints = tuple(Constraint(limit, key) for key, limit in least.items())
    floors = _floors(constraints, asked, follows)
    return LinearProgramme(tuple(map(float, weights)), floors, constraints, follows)


def _floors(
    constraints: Sequence[Constraint], asked: Sequence[float], follows: Sequence[Follow]
) -> tuple[float, ...]:
    asked = list(asked)
    for follower, ahead, _ in reversed(follows):
        asked[ahead] = max(asked[ahead], asked[follower])
    floors = list(asked)
    for constraint in constraints:
        asking = [(number, count) for number, count in constraint.terms if asked[number]]
        for number, _ in asking:
            share = constraint.limit / sum(count for _, count in asking)
            floors[number] = min(floors[number], share)
    for follower, ahead, _ in follows:
        floors[follower] = min(floors[follower], floors[ahead])
    return tuple(floors)
