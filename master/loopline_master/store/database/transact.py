"""The type of everything that runs work in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection

Result = TypeVar("Result")


class Transact(Protocol):
    """Runs work in one transaction, which is committed on return and undone if the work raises.

    Raises StoreBroken if the database itself fails. ``is_short``: the work touches a few rows only.
    """

    async def __call__(self, work: Callable[[Connection], Result], *, is_short: bool = False) -> Result: ...
