"""What clients ask for: how much is computed, and how many bytes go out and come back (section 4.1)."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from loopline_simulator.papers.global_computing.part import Part, Positive

Count = Annotated[int, Field(ge=1, le=10**7)]
Bytes = Annotated[float, Field(ge=0, le=1e12)]


class Linpack(Part):
    """``n`` equations: 2/3 n^3 + 2 n^2 operations, 8 n^2 + 20 n bytes. The published figures look as if 2/3 had been
    computed in whole numbers, which leaves 2 n^2 of them to the server (``integer_division``), yet with all of them
    credited in the performance.
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
    """2 ** (n + 1) random numbers and hardly a byte. Taken for operations they are done in no time; the published
    times need about 1240 operations for each (``operations_each``).
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
    """Any other."""

    kind: Literal["custom"] = "custom"
    work_mop: Positive
    out_bytes: Bytes
    back_bytes: Bytes

    @property
    def credited_mop(self) -> float:
        return self.work_mop


Program = Annotated[Linpack | EP | Custom, Field(discriminator="kind")]


def packets(size: float, packet_bytes: float) -> int:
    """Into how many packets of full size so many bytes are cut: one at least."""
    return max(1, math.ceil(size / packet_bytes))
