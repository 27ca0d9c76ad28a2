"""The base of all bodies, pages of a list, and errors as the REST API answers them."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from loopline_shared.rest.times import Time


class Body(BaseModel):
    """Base of all bodies. Readers ignore unknown keys, so that a newer master serves an older client."""

    model_config = ConfigDict(frozen=True, defer_build=True)  # few of them are needed at a start


class Period(Body):
    """A period of time. ``until`` is null while it continues."""

    since: Time
    until: Time | None = None


class FieldError(Body):
    """A mistake in a request's body or parameters; ``at`` points to it: ``parameters.seed.range``."""

    at: str
    message: str


class Problem(Body):
    """RFC 9457 (application/problem+json), with a code for programs and the next step for people."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    errors: list[FieldError] = []


Item = TypeVar("Item")


class Page(Body, Generic[Item]):
    """A page of a list. ``next`` is the cursor of the following page; null: this is the last."""

    items: list[Item]
    next: str | None = None
