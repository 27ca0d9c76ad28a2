"""The fast world with stragglers: the time of each attempt has a heavy tail, and is drawn independently.

A straggler may be *relaunched*: its host gives it back after a delay, and the task begins again, here or elsewhere
(Aktas, Peng and Soljanin, "Straggler mitigation by delayed relaunch of tasks", 2017). A task is relaunched once; its
second attempt runs to the end. Live workers have no such rule. It assumes hosts that stay and no checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

from loopline_master.core.events import SchedulerSettings
from loopline_master.core.kernel.effects import Effects
from loopline_shared.model import AttemptId, Outcome, Result, TaskId
from loopline_shared.sweep import size_at
from loopline_simulator.fast.world import Arrival, FastWorld, Host
from loopline_simulator.streams import stream


@dataclass(frozen=True, slots=True)
class Straggling:
    """Factors on the work of attempts: Pareto of mean 1, drawn for each attempt. The smaller the shape, the heavier
    the tail: under 2 the variance is infinite.
    """

    shape: float
    _: KW_ONLY
    relaunch_after: float = math.inf  # times the task's declared size, in seconds of a host of speed 1

    @property
    def least(self) -> float:
        """The smallest factor."""
        return (self.shape - 1) / self.shape

    def factor(self, seed: int, attempt: AttemptId) -> float:
        """Return the factor of an attempt. The n-th attempt of a task has the same under every policy."""
        drawn = float(stream(seed, "straggler", attempt.job, attempt.task, attempt.number).random())
        return self.least * math.pow(1 - drawn, -1 / self.shape)

    def beyond(self, factor: float) -> float:
        """Return the share of first attempts that are longer than ``factor``."""
        return 1.0 if factor <= self.least else float((self.least / factor) ** self.shape)

    def task_beyond(self, factor: float) -> float:
        """Return the share of tasks that need longer than ``factor`` with a relaunch, if no attempt ever waits."""
        if factor <= self.relaunch_after:
            return self.beyond(factor)
        return self.beyond(self.relaunch_after) * self.beyond(factor - self.relaunch_after)


class StragglingWorld(FastWorld):
    """A fast world whose attempts straggle, and may be relaunched."""

    def __init__(
        self,
        settings: SchedulerSettings,
        hosts: Sequence[Host],
        arrivals: Iterable[Arrival],
        observe: Callable[[Effects], None] = lambda effects: None,
        *,
        straggling: Straggling,
        seed: int,
    ) -> None:
        self._straggling = straggling
        self._seed = seed
        self._relaunched: set[TaskId] = set()
        super().__init__(settings, hosts, arrivals, observe)

    def _start(self, host: Host, attempt: AttemptId) -> None:
        declared = size_at(self.scheduler.state.jobs[attempt.job].spec, attempt.task) or 0.0
        factor = self._straggling.factor(self._seed, attempt)
        end, now = host.speed.end_of(self.kernel.now, declared * factor), self.kernel.now
        give_up = now + declared * self._straggling.relaunch_after
        if end > give_up and attempt.task_id not in self._relaunched:
            self._relaunched.add(attempt.task_id)
            call: Callable[[], None] = partial(self._relaunch, host, attempt)
            host.running[attempt] = (now, self.kernel.at(give_up, call))
        else:
            host.running[attempt] = (now, self.kernel.at(end, partial(self._end, host, attempt)))

    def _relaunch(self, host: Host, attempt: AttemptId) -> None:
        since = self._leave(host, attempt)
        self._brought(host, Result(attempt, Outcome.GIVEN_BACK, wall_s=self.kernel.now - since))
