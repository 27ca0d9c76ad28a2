"""Better assignments by a genetic algorithm, the other way that Takahashi et al. mean to try (section 2).

A child takes about half of its places from one parent and fills the others in the order of the other parent; then the
task of a place that waited for a full link in the first parent is swapped, as in annealing. The worst of the
population dies. A parent is the better of two drawn at random.
"""

from __future__ import annotations

from loopline_master.core.chance import draw
from loopline_simulator.papers.data_transfer.annealing import swapped
from loopline_simulator.papers.data_transfer.assignment import Assessment, Assignment, Order, local_first

_POPULATION = 12


def evolve(assessment: Assessment, seed: int, steps: int) -> Assignment:
    """Return the best assignment found among ``steps`` children; the same seed gives the same one."""
    first = assessment.of(local_first(assessment))
    population = [first]
    for step in range(steps):
        one, other = first, first
        if len(population) == _POPULATION:
            one, other = (_parent(population, seed, step, which) for which in (4, 6))
        order = swapped(_crossed(one, other, seed, step), one.moved_first or first.moved_first, seed, step)
        if order is None:
            break
        population.append(assessment.of(order))
        if len(population) > _POPULATION:
            population.remove(min(population, key=_value))
    return max(population, key=_value)


def _parent(population: list[Assignment], seed: int, step: int, which: int) -> Assignment:
    drawn = [population[int(draw(seed, step, which + n) * len(population))] for n in range(2)]
    return max(drawn, key=_value)


def _value(assignment: Assignment) -> float:
    return assignment.value


def _crossed(one: Assignment, other: Assignment, seed: int, step: int) -> Order:
    """Return the places of one parent with even chances, and the other's tasks in its order at the rest."""
    kept = [task if draw(seed, step, place, 8) < 0.5 else None for place, task in enumerate(one.order)]
    have = set(kept)
    rest = iter(task for task in other.order if task not in have)
    return tuple(next(rest) if task is None else task for task in kept)
