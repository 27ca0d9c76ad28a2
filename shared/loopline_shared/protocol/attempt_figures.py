"""Figures of an attempt that few attempts have: metrics of its task, and energy."""

from __future__ import annotations

from enum import StrEnum
from operator import not_
from typing import Annotated

from pydantic import Field

MAX_METRICS = 32
_Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Whole = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Metrics = Annotated[dict[_Name, _Whole | _Number], Field(max_length=MAX_METRICS)]
"""Names and numbers of a task's own, such as a loss, left in the file that LOOPLINE_RESULT names."""
Left = Annotated[Metrics | None, Field(exclude_if=not_)]
"""Metrics as they travel with a result: most tasks leave none."""


class EnergySource(StrEnum):
    """Origin of a figure. Figures of different sources cover different parts of a computer."""

    SOCKET = "socket"
    """Measured at the socket: the whole computer."""
    PACKAGE = "package"
    """Measured by the processor: its package only, without memory, disks, GPUs and power supply."""
    DECLARED = "declared"
    """Computed from CPU time and the watts that the computer's operator declared."""
    GPU = "gpu"
    """Measured by the GPU. A figure of the socket does not contain it."""


Joules = Annotated[
    dict[EnergySource, Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]] | None,
    Field(exclude_if=not_, max_length=len(EnergySource)),
]
"""Joules above the computer's idle power, by source; None: nothing is measured or declared."""
