"""Phrases that explanations are made of: durations and counts."""

from __future__ import annotations


def spoken(seconds: float) -> str:
    """Return a duration for people, as ``45 s``, ``40 min`` or ``2.5 h``."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
