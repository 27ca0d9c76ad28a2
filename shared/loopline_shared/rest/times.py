"""Times in JSON, of REST and of ``--json``: RFC 3339 in UTC. Programs have seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

_LAST = 253402300799.0  # of the year 9999
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?|[-+]?inf|nan", re.IGNORECASE)
_SCHEMA: dict[str, Any] = {"type": "string", "format": "date-time", "examples": ["2027-01-31T08:15:30.250000Z"]}


def rfc3339(at: float) -> str:
    """Return a time, in seconds since 1970, as RFC 3339 has it."""
    return datetime.fromtimestamp(min(max(at, 0.0), _LAST), UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def seconds(value: object) -> object:
    """Return a time as seconds since 1970, if it is written as RFC 3339 has it; anything else as it is.

    Raises ValueError if it is a time without a zone.
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    try:
        at = datetime.fromisoformat(value.upper())
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ValueError("write a time as 2027-01-31T08:15:30Z, with its zone, or in seconds since 1970")
    return max(0.0, at.timestamp())


Time = Annotated[float, BeforeValidator(seconds), PlainSerializer(rfc3339, when_used="json"), WithJsonSchema(_SCHEMA)]
"""A time in an answer."""
Moment = Annotated[
    float,
    Field(ge=0, allow_inf_nan=False),
    BeforeValidator(seconds, json_schema_input_type=datetime | Annotated[float, Field(ge=0)]),
    Field(description="RFC 3339, or seconds since 1970"),
]
"""A time in a request."""
