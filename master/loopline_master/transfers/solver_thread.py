"""The solver beside the loop: plans that the scheduler asks for are made in a thread, and come back as events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter

from loopline_master.core.events import TransfersPlanned
from loopline_master.core.wings.transfers.carrier import NumberedRequest
from loopline_master.transfers.solver import Solver

log = logging.getLogger(__name__)

Post = Callable[[TransfersPlanned], object]
Took = Callable[[float], None]


class SolverThread:
    """The thread that makes one plan after the other. ``took`` is called with the duration of each in seconds."""

    def __init__(self, solver: Solver, took: Took = lambda seconds: None) -> None:
        self.solver = solver
        self.post: Post = lambda event: None
        self._took = took
        self._thread = ThreadPoolExecutor(1, "transfer-plan")
        self._is_closed = False

    def start(self, asked: NumberedRequest) -> None:
        """Make a plan and post it. A request without a possible plan is answered with an empty one.

        After ``close``, during the last turns of a stopping master, no plan is made.
        """
        if self._is_closed:
            return
        made = asyncio.get_running_loop().run_in_executor(self._thread, self._make, asked)
        made.add_done_callback(partial(self._answer, asked.number))

    def close(self) -> None:
        """Wait for the plan that is being made, and make no more."""
        self._is_closed = True
        self._thread.shutdown(cancel_futures=True)

    def _make(self, asked: NumberedRequest) -> tuple[TransfersPlanned, float]:
        began = perf_counter()
        plan = self.solver.plan(asked.request())
        return TransfersPlanned(asked.number, asked.answer(plan), plan.objective), perf_counter() - began

    def _answer(self, number: int, made: asyncio.Future[tuple[TransfersPlanned, float]]) -> None:
        if made.cancelled():
            return
        if error := made.exception():
            log.error("no plan of transfers could be made: files come from the master", exc_info=error)
            self.post(TransfersPlanned(number, (), 0.0))
            return
        planned, took_s = made.result()
        self._took(took_s)
        self.post(planned)
