"""Distributions of sizes and intervals: laws of mean 1, and random numbers drawn from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from loopline_simulator.papers.global_computing.part import Part
from loopline_simulator.streams import Generator

Numbers = NDArray[np.float64]
_BLOCK = 256


class Exponential(Part):
    kind: Literal["exponential"] = "exponential"

    def draw(self, random: Generator, count: int) -> Numbers:
        return random.standard_exponential(count)


class Constant(Part):
    kind: Literal["constant"] = "constant"

    def draw(self, random: Generator, count: int) -> Numbers:
        return np.ones(count)


class Uniform(Part):
    """A law uniform from 1 - spread to 1 + spread."""

    kind: Literal["uniform"] = "uniform"
    spread: Annotated[float, Field(ge=0, le=1)] = 1.0

    def draw(self, random: Generator, count: int) -> Numbers:
        return random.uniform(1 - self.spread, 1 + self.spread, count)


class Lognormal(Part):
    """A lognormal law with the standard deviation ``cv`` (of the mean 1)."""

    kind: Literal["lognormal"] = "lognormal"
    cv: Annotated[float, Field(gt=0, le=100)]

    def draw(self, random: Generator, count: int) -> Numbers:
        variance = math.log1p(self.cv**2)
        return random.lognormal(-variance / 2, math.sqrt(variance), count)


class Pareto(Part):
    """A law with P(X > x) = (least / x) ** shape: a smaller shape has a heavier tail (infinite variance up to 2)."""

    kind: Literal["pareto"] = "pareto"
    shape: Annotated[float, Field(gt=1, le=100)]

    @property
    def least(self) -> float:
        return (self.shape - 1) / self.shape

    def draw(self, random: Generator, count: int) -> Numbers:
        return self.least * (1 + random.pareto(self.shape, count))

    def rest(self, random: Generator) -> float:
        """Draw the remainder, at a random moment, of a period under this law (its equilibrium law)."""
        chance = float(random.random())
        if chance < self.least:  # the moment falls before the period's least length
            return chance
        return float(self.least * (1 - random.random()) ** (-1 / (self.shape - 1)))


Law = Annotated[Exponential | Constant | Uniform | Lognormal | Pareto, Field(discriminator="kind")]


def draws(law: Any, mean: float, random: Generator) -> Iterator[float]:
    """Yield random numbers of the law and this mean, without end."""
    while True:
        yield from (mean * law.draw(random, _BLOCK)).tolist()
