"""The limit of failed tasks at which a job is stopped: a number, or a share of its tasks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MOST_FAILS = 100_000_000
_SHARE = r"^(100|[1-9]\d?(\.\d{1,6})?|0\.0{0,5}[1-9]\d{0,5})%$"
"""Above 0 and up to 100 per cent."""


MaxFails = Annotated[
    Annotated[int, Field(ge=1, le=MOST_FAILS)] | Annotated[str, Field(pattern=_SHARE)],
    Field(description="failed tasks at which the job is stopped: a number, or a share such as 10%"),
]
