"""Value of a parameter: the values that JSON, command lines and all languages share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag, WithJsonSchema

from loopline_shared.model import NO_NUL

Exact = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""A whole number that survives every JSON reader."""


def _scalar_kind(value: object) -> str:
    """Return the kind that a value is validated as, so that an error mentions one kind only."""
    return {bool: "bool", int: "int", float: "float"}.get(type(value), "text")


Scalar = Annotated[
    Annotated[str, Field(max_length=10_000, pattern=NO_NUL), Tag("text")]
    | Annotated[bool, Field(strict=True), Tag("bool")]
    | Annotated[Exact, Field(strict=True), Tag("int")]
    | Annotated[float, Field(strict=True, allow_inf_nan=False), Tag("float")],
    Discriminator(_scalar_kind),
    WithJsonSchema(  # not "oneOf": every integer is a number too
        {
            "anyOf": [
                {"type": "string", "maxLength": 10_000, "pattern": NO_NUL},
                {"type": "boolean"},
                {"type": "number"},
            ]
        }
    ),
]
"""Value of a parameter."""
