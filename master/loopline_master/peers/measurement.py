"""Measuring an idle grid when an operator asks for it: probes within it, one set of flows after the other.

Nothing is probed while anything runs, or while the owner of any connected PC is there. As soon as that changes, the
probes under way are called off; workers end them by themselves, too, when they get a task or their owner comes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.transfers.assumed_network import MASTER
from loopline_master.core.wings.transfers.flow_sample import FlowSample, Pair
from loopline_master.core.wings.transfers.probe_order import Together, next_probes
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.live_network import LiveNetwork
from loopline_shared.errors import LooplineError
from loopline_shared.protocol.transfers import FileSource, FlowMeasured
from loopline_shared.rest.bodies.network import MeasurementView

log = logging.getLogger(__name__)

_PROBE_S = 1.0
_ANSWER_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.1

SendProbe = Callable[[str, FileSource | None, float], Awaitable[FlowMeasured | None]]
"""Has a worker receive from a source, or without one from the master, for some seconds; for none, ends that."""


class Measurement:
    """At most one measurement at a time, and how the last one went."""

    def __init__(self, network: LiveNetwork, exchange: Exchange, scheduler: Scheduler, send: SendProbe) -> None:
        self._network = network
        self._exchange = exchange
        self._state = scheduler.state
        self._send = send
        self._view = MeasurementView(is_running=False, probes=0, outcome="")
        self._running: asyncio.Task[None] | None = None

    @property
    def view(self) -> MeasurementView:
        """The progress, or the outcome of the last one."""
        return self._view

    def start(self) -> MeasurementView:
        """Begin to measure. Raises LooplineError, with the reason, if this is no time for it."""
        if self._running is None or self._running.done():
            if reason := self._obstacle():
                raise LooplineError(
                    "not_idle", f"the network cannot be measured now: {reason}", "ask again later", 409
                )
            self._view = MeasurementView(is_running=True, probes=0, outcome="")
            self._running = asyncio.create_task(self._measure())
        return self._view

    async def _measure(self) -> None:
        hosts, done, outcome = self._exchange.reachable(), dict[Together, dict[Pair, float]](), ""
        try:
            while (pairs := next_probes(hosts, done)) and not (outcome := self._obstacle()):
                found = await self._probe(pairs)
                if outcome := self._obstacle():
                    break  # it may have begun while the probe ran, and have held it back
                done[pairs] = found
                self._network.show(FlowSample(time.time(), found, frozenset(found), is_idle=True))
                self._view = MeasurementView(is_running=True, probes=len(done), outcome="")
        finally:
            outcome = f"stopped: {outcome}" if outcome else "measured" if not pairs else "stopped"
            self._view = MeasurementView(is_running=False, probes=len(done), outcome=outcome)
            log.info("the network has been probed %d times: %s", len(done), outcome)

    async def _probe(self, pairs: Together) -> dict[Pair, float]:
        """Return the rates of flows that run together, as far as they could run."""
        asked = {pair: asyncio.ensure_future(self._ask(pair)) for pair in pairs}
        until, waiting = time.monotonic() + _ANSWER_WITHIN_S, set(asked.values())
        while waiting and time.monotonic() < until and not self._obstacle():
            _, waiting = await asyncio.wait(waiting, timeout=_LOOK_EVERY_S)
        for pair, answer in asked.items():
            if answer in waiting:
                answer.cancel()
                await self._send(pair[1], None, 0.0)
        answers = {pair: answer.result() for pair, answer in asked.items() if answer not in waiting}
        for pair, probed in answers.items():
            if probed and probed.reason:
                log.info("no probe from %s to %s: %s", *pair, probed.reason)
        return {pair: probed.rate_bytes_s for pair, probed in answers.items() if probed and probed.rate_bytes_s}

    async def _ask(self, pair: Pair) -> FlowMeasured | None:
        source, receiver = pair
        if source == MASTER:
            return await self._send(receiver, None, _PROBE_S)
        told = self._exchange.probe_source(source, receiver)
        return await self._send(receiver, told, _PROBE_S) if told else None

    def _obstacle(self) -> str:
        """Return why nothing may be probed now; empty if it may."""
        if not self._exchange.is_on:
            return "files do not go between workers (peers = off, or auto without encryption)"
        if self._network.has_file:
            return "it is written down in a network.toml"
        if self._exchange.flows():
            return "files are on their way"
        for worker in self._state.workers.values():
            if worker.session is None:
                continue
            if worker.load and worker.load.in_use:
                return f"somebody is at {worker.name}, or may be"
            if self._state.index.attempts.in_hand(worker.name):
                return f"{worker.name} has tasks"
        return "" if len(self._exchange.reachable()) > 1 else "fewer than two workers can reach one another"
