"""Metrics: names and numbers of a task's own, such as a loss, left in the file that LOOPLINE_RESULT names."""

from __future__ import annotations

from operator import not_
from typing import Annotated

from pydantic import Field

MAX_METRICS = 32
_Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Whole = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Metrics = Annotated[dict[_Name, _Whole | _Number], Field(max_length=MAX_METRICS)]
"""As people and programs read them."""
Left = Annotated[Metrics | None, Field(exclude_if=not_)]
"""As they travel with a result: most tasks leave none."""
