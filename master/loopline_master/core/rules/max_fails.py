"""The limit of failures: a job of which so many tasks have failed is stopped, since the rest would fail alike.

GNU parallel has it as ``--halt soon,fail=N``. A stopped job counts as cancelled, not as failed: it leaves the grid
without completing, so that the order guarantee holds even where the job was held back.
"""

from __future__ import annotations

from loopline_master.core import lifecycle
from loopline_master.core.state import State

REASON = "the job was stopped: too many of its tasks failed"


def stop(state: State) -> None:
    """Cancel the jobs that have reached their limit. Those whose tasks are all over end by themselves."""
    for number in sorted(state.index.failing):
        lifecycle.cancel_job(state, state.jobs[number], REASON)
