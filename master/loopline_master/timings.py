"""Timing constants of the master that depend on one another, or on settings. All are in seconds."""

from __future__ import annotations

INVARIANT_SAMPLE_EVERY_S = 5.0
