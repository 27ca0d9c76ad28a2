"""Errors that a user can act on: a code for programs, a sentence for people, and the next step."""

from __future__ import annotations


class LooplineError(Exception):
    """What went wrong and what to do about it. Shown as problem+json by REST, and plainly by the CLI."""

    def __init__(self, code: str, message: str, hint: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status


class ProtocolError(Exception):
    """The other end of a worker link said something it must not: that link is closed, nothing else."""
