"""The base of documents that users write, and values that JSON, command lines and all languages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import to_jsonable_python

from loopline_shared.model import NO_NUL

MAX_TEXT_CHARACTERS = 10_000
"""Longest text that is the value of a parameter. Arguments of calls are such texts, unless they are files."""
Exact = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""A whole number that survives every JSON reader."""


class Spec(BaseModel):
    """Base of everything that a user writes: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


def _scalar_kind(value: object) -> str:
    """Return the kind that a value is validated as, so that an error mentions one kind only."""
    return {bool: "bool", int: "int", float: "float"}.get(type(value), "text")


Scalar = Annotated[
    Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS, pattern=NO_NUL), Tag("text")]
    | Annotated[bool, Field(strict=True), Tag("bool")]
    | Annotated[Exact, Field(strict=True), Tag("int")]
    | Annotated[float, Field(strict=True, allow_inf_nan=False), Tag("float")],
    Discriminator(_scalar_kind),
    WithJsonSchema(  # not "oneOf": every integer is a number too
        {
            "anyOf": [
                {"type": "string", "maxLength": MAX_TEXT_CHARACTERS, "pattern": NO_NUL},
                {"type": "boolean"},
                {"type": "number"},
            ]
        }
    ),
]
"""Value of a parameter."""
Size = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]
"""Amount of computation in reference CPU-seconds."""


def fresh(kind: Callable[[], Any]) -> Any:
    """Return a field whose default is made for each: pydantic copies one that is shared, deeply."""
    return Field(default_factory=kind, json_schema_extra=lambda to: to.update(default=to_jsonable_python(kind())))


def _unless_unknown(value: object, read: ValidatorFunctionWrapHandler) -> object:
    return value if value == "unknown" else read(value)


if TYPE_CHECKING:
    JobSize = float | Literal["unknown"]
else:  # one kind of mistake, in one place: not one for each member of a union
    JobSize = Annotated[
        Size,
        WrapValidator(_unless_unknown, json_schema_input_type=Size | Literal["unknown"]),
        PlainSerializer(lambda size: size, return_type=Size | Literal["unknown"]),
    ]
