"""Services that run beside the engine. One that fails is started again, and the master is not ready until it runs.

A service runs for as long as the master does. If it raises an error it is started again after a pause, which doubles
from ``FIRST_PAUSE_S`` to ``LONGEST_PAUSE_S`` while it keeps failing. Once it has run for as long as the last pause it
counts as recovered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from loopline_master.metrics import Metrics
from loopline_master.passing import is_superseded, passes
from loopline_shared.errors import LooplineError

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class Service:
    """A service, with its name in ``/metrics``, and the consequence of its failure for people."""

    name: str
    consequence: str
    run: Callable[[], Coroutine[Any, Any, None]]


class Background:
    """Runs services, and knows which of them are failing."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._failing: dict[str, Service] = {}

    def check(self) -> None:
        """Raises LooplineError (503) if a service is failing."""
        if self._failing:
            message = "; ".join(service.consequence for service in self._failing.values())
            hint = "it is started again by itself; the master's log says why it failed"
            raise LooplineError("degraded", message, hint, status=503)

    @contextmanager
    def running(self, services: Sequence[Service]) -> Iterator[None]:
        """Run services for the block."""
        tasks = [asyncio.create_task(self._keep(each), name=f"service {each.name}") for each in services]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def _keep(self, service: Service) -> None:
        pause_s, said = FIRST_PAUSE_S, ""
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            recovery = loop.call_later(pause_s, self._set_failing, service, False)
            try:
                await service.run()
                return
            except Exception as error:
                if is_superseded(error):
                    return  # the engine ends with the same error, which the master's runner reports
                if loop.time() - began_at > pause_s:
                    pause_s, said = FIRST_PAUSE_S, ""
                self._set_failing(service, True)
                self._metrics.count_service_failure(service.name)
                said = _report(service, error, pause_s, said)
            finally:
                recovery.cancel()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _set_failing(self, service: Service, is_failing: bool) -> None:
        if is_failing:
            self._failing[service.name] = service
        elif self._failing.pop(service.name, None) is not None:
            log.info("running again: %s", service.name)
        self._metrics.set_service_failing(service.name, is_failing=is_failing)


def _first_of(error: BaseException) -> BaseException:
    """Return the first error of a group, whose own message names no cause; else the error itself."""
    return _first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _report(service: Service, error: Exception, pause_s: float, said: str) -> str:
    """Log a failure, unless it was the last one as well. Return its message."""
    first = _first_of(error)
    message = str(first) or type(first).__name__
    if message == said:
        return said
    if passes(error):
        log.warning("%s: %s; trying again in %g s", service.consequence, message, pause_s)
    else:
        log.error("%s; trying again in %g s", service.consequence, pause_s, exc_info=error)
    return message
