"""Checks the live scheduler's invariants, one sample at a time, between steps."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection
from itertools import islice
from typing import TypeVar

from loopline_master.core.invariants import check_job, check_worker
from loopline_master.core.scheduler import Scheduler
from loopline_master.metrics import Metrics
from loopline_master.timings import INVARIANT_SAMPLE_EVERY_S

log = logging.getLogger(__name__)

Key = TypeVar("Key")


class InvariantSampler:
    """Picks a job and a worker at random every few seconds. A breach is logged and counted; the master goes on."""

    def __init__(self, scheduler: Scheduler, metrics: Metrics) -> None:
        self._scheduler, self._metrics = scheduler, metrics
        self._sampled_at = float("-inf")

    def after_step(self) -> None:
        """Take a sample if one is due; to be called when a step is over, and before the next one begins."""
        now = self._scheduler.state.now
        if now - self._sampled_at >= INVARIANT_SAMPLE_EVERY_S:
            self._sampled_at = now
            self.sample()

    def sample(self) -> None:
        """Check one job and one worker."""
        state = self._scheduler.state
        try:
            if state.jobs:
                check_job(state, _any_of(state.jobs))
            if state.workers:
                check_worker(state, _any_of(state.workers))
        except AssertionError as breach:
            log.error("the scheduler breaks an invariant, which is a bug of Loopline: %s", breach)
            self._metrics.count_sample(is_breach=True)
        else:
            self._metrics.count_sample(is_breach=False)


def _any_of(keys: Collection[Key]) -> Key:
    return next(islice(keys, random.randrange(len(keys)), None))  # noqa: S311 no secret
