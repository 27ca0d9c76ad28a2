"""Programs that clients request: the amount of computation and the bytes sent and received (section 4.1)."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from loopline_simulator.papers.global_computing.part import Part, Positive

Count = Annotated[int, Field(ge=1, le=10**7)]
Bytes = Annotated[float, Field(ge=0, le=1e12)]


class Linpack(Part):
    """A system of ``n`` equations: 2/3 n^3 + 2 n^2 operations, 8 n^2 + 20 n bytes.

    The published figures look as if 2/3 had been computed in whole numbers, which leaves 2 n^2 operations to the
    server (``integer_division``), yet with all of them credited in the performance.
    """

    kind: Literal["linpack"] = "linpack"
    n: Count
    integer_division: bool = False

    @property
    def credited_mop(self) -> float:
        return (2 / 3 * self.n**3 + 2 * self.n**2) / 1e6

    @property
    def work_mop(self) -> float:
        return 2 * self.n**2 / 1e6 if self.integer_division else self.credited_mop

    @property
    def out_bytes(self) -> float:
        return 8.0 * self.n**2 + 8 * self.n

    @property
    def back_bytes(self) -> float:
        return 12.0 * self.n


class EP(Part):
    """A program of 2 ** (n + 1) random numbers that hardly transfers a byte.

    If each number is one operation it takes no time; the published times need about 1240 operations for each
    (``operations_each``).
    """

    kind: Literal["ep"] = "ep"
    n: Annotated[int, Field(ge=1, le=60)]
    operations_each: Positive = 1.0

    @property
    def work_mop(self) -> float:
        return float(2 ** (self.n + 1) * self.operations_each / 1e6)

    @property
    def credited_mop(self) -> float:
        return self.work_mop

    @property
    def out_bytes(self) -> float:
        return 0.0

    @property
    def back_bytes(self) -> float:
        return 0.0


class Custom(Part):
    """A program given by its figures."""

    kind: Literal["custom"] = "custom"
    work_mop: Positive
    out_bytes: Bytes
    back_bytes: Bytes

    @property
    def credited_mop(self) -> float:
        return self.work_mop


Program = Annotated[Linpack | EP | Custom, Field(discriminator="kind")]


def packets(size: float, packet_bytes: float) -> int:
    """Return the number of full-size packets for this many bytes, at least one."""
    return max(1, math.ceil(size / packet_bytes))
