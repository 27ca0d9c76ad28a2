"""The base of all parts of a scenario file: an error about an unknown key names the nearest one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from loopline_shared.plain_words import meant
from loopline_shared.scalar import Spec

Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=60)]


class Part(Spec):
    """A table of a scenario file."""

    @model_validator(mode="before")
    @classmethod
    def _knows_every_key(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for key in given:
                if key not in cls.model_fields:
                    raise ValueError(f"unknown key {key!r}: {meant(str(key), cls.model_fields)}")
        return given
