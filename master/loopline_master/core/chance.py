"""Chance that a restart repeats: drawn from stored numbers, never from a generator's state."""

from __future__ import annotations

_MASK = 2**64 - 1


def draw(*seeds: int) -> float:
    """Return a number from 0 up to 1, as if at random, but always the same for the same seeds (SplitMix64)."""
    mixed = 0
    for seed in seeds:
        mixed = (mixed + seed + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return (mixed >> 11) / 2**53
