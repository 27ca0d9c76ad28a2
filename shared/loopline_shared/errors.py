"""Errors that a user can act on: a code for programs, a sentence for people, and the next step."""

from __future__ import annotations


class LooplineError(Exception):
    """An error and the next step: shown as problem+json by REST, and as plain text by the CLI."""

    def __init__(self, code: str, message: str, hint: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status


class ProtocolError(Exception):
    """A violation of the link's protocol by the other end. It closes that link only."""
