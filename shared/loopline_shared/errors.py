"""Errors that a user can act on: a code for programs, a sentence for people, and the next step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """A limit that a request exceeded: how much is allowed, and how much of it is left.

    REST says it in RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-10).
    """

    allowed: int
    left: int = 0
    unit: str = "requests"
    window_s: int | None = None  # in which so much is allowed; None: at once
    again_s: int | None = None  # until there is more; None: nobody knows


class LooplineError(Exception):
    """An error and the next step: shown as problem+json by REST, and as plain text by the CLI."""

    def __init__(
        self, code: str, message: str, hint: str = "", status: int = 400, *, quota: ExceededLimit | None = None
    ) -> None:
        super().__init__(message)
        self.quota = quota
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it without a call of ``__init__``, so that it passes through pools of processes."""
        return type(self).__new__, (type(self), self.message), self.__dict__


class ProtocolError(Exception):
    """A violation of the link's protocol by the other end. It closes that link only."""
