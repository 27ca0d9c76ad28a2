"""Better assignments by simulated annealing, which Takahashi et al. intend to try (section 2).

A step swaps the tasks of two hosts; the first of them waits for a full link. A better assignment is always accepted,
a worse one with a probability that falls with the loss and with time; the best one found is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loopline_master.core.chance import draw
from loopline_simulator.papers.data_transfer.assignment import Assessment, Assignment, Order, local_first

_HOT, _COLD = 0.03, 0.0003
"""Losses, as shares of the first value, that are taken with a chance of 1/e at the beginning and at the end."""


def anneal(assessment: Assessment, seed: int, steps: int) -> Assignment:
    """Return the best assignment found in ``steps`` steps; the same seed gives the same one."""
    now = best = assessment.of(local_first(assessment))
    scale = now.value
    for step in range(steps):
        order = swapped(now.order, now.moved_first, seed, step)
        if order is None:
            break
        other = assessment.of(order)
        heat = scale * _HOT * (_COLD / _HOT) ** (step / steps)
        if other.value >= now.value or draw(seed, step, 3) < math.exp((other.value - now.value) / heat):
            now = other
        if now.value > best.value:
            best = now
    return best


def swapped(order: Order, waiting: Sequence[int], seed: int, step: int) -> Order | None:
    """Return the order with the task of one of the places that wait for full links swapped with any other.

    None if no place waits, or there is nothing to swap with.
    """
    if not waiting or len(order) < 2:
        return None
    one = waiting[int(draw(seed, step, 1) * len(waiting))]
    other = int(draw(seed, step, 2) * (len(order) - 1))
    other += other >= one
    changed = list(order)
    changed[one], changed[other] = changed[other], changed[one]
    return tuple(changed)
