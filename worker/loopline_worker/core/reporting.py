"""Attempts as the next Report has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile

from loopline_shared.model import AttemptId, Result
from loopline_shared.protocol.worker_link import MAX_OUTPUT_FILES_PER_REPORT, MAX_RESULTS_PER_REPORT
from loopline_worker.core.attempts import Attempts


@dataclass(slots=True)
class AttemptInventory:
    """All attempts that are in hand, each of them once."""

    holding: list[AttemptId]  # have begun, and their results do not go with this Report
    results: list[Result]  # the oldest first
    waiting: list[AttemptId]  # have not begun, in the order in which they came


def inventory_of(attempts: Attempts) -> AttemptInventory:
    """Return what the next Report says.

    A result that has to wait for a later Report leaves its attempt in hand: left out of both, the master would take
    it for lost.
    """
    results = [attempt.result for attempt in attempts.unsent.values() if attempt.result]
    fits = _fits(results)
    later = (result.attempt for result in results[fits:])
    holding = [*attempts.running, *attempts.frozen, *attempts.ending, *attempts.delivering, *later]
    return AttemptInventory(holding, results[:fits], [*attempts.prefetched, *attempts.waiting])


def _fits(results: Iterable[Result]) -> int:
    """Return how many of them, from the first on, a Report can bring."""
    files = accumulate(len(result.outputs) for result in islice(results, MAX_RESULTS_PER_REPORT))
    return sum(1 for _ in takewhile(lambda count: count <= MAX_OUTPUT_FILES_PER_REPORT, files))


def names_files(result: Result) -> bool:
    """True if the master must have files before it may have the result."""
    value = result.value and result.value.sha256
    return bool(value or result.stdout.sha256 or result.stderr.sha256 or result.outputs)
