"""Failures that pass by themselves, in whichever part: the database is away or locked, or the bucket is away."""

from __future__ import annotations

from loopline_master.files.bucket import AWAY
from loopline_master.store import StoreBroken
from loopline_master.store.database import SUPERSEDED
from loopline_shared.errors import LooplineError


def passes(error: BaseException) -> bool:
    """True if trying again later is enough: a person need not repair anything."""
    if isinstance(error, BaseExceptionGroup):
        return all(passes(each) for each in error.exceptions)
    if isinstance(error, StoreBroken):
        return error.is_passing
    return isinstance(error, LooplineError) and error.code == AWAY


def is_superseded(error: BaseException) -> bool:
    """True if another master has taken over."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_superseded(each) for each in error.exceptions)
    return isinstance(error, StoreBroken) and error.code == SUPERSEDED
