"""Workers that only report their tasks as done: many of them in one process, over real sockets.

Each keeps its orders as a real worker's window: a Report brings results of about half of it and reports the other
half as held. Frames are written and read without a model, so that the swarm costs little beside its master.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from loopline_shared.model import AttemptId, Facts
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.link_session import WorkerSession

STDOUT = {"size_bytes": 5, "data": "ZG9uZQo="}
EMPTY = {"size_bytes": 0}
MAX_RESULTS = 400
BEAT_S = 5.0
"""From one Report to the next at most: a master gives up who is silent for a lease."""


@dataclass
class Tally:
    """Results that the swarm has delivered, until they are as many as wanted."""

    wanted: int
    taken: int = 0
    reports: int = 0
    acknowledged: int = 0
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def acknowledge(self, results: int) -> None:
        self.acknowledged += results
        self._moved.set()

    async def until(self, acknowledged: int) -> None:
        while self.acknowledged < acknowledged:
            self._moved.clear()
            await self._moved.wait()

    def take(self, most: int) -> int:
        """Reserve at most this many further results to deliver; return their number."""
        taken = min(most, self.wanted - self.taken)
        self.taken += taken
        return taken


class LightWorker:
    def __init__(self, name: str, slots: int, tally: Tally, rest_s: float = 0.0) -> None:
        self.name, self._rest_s = name, rest_s
        self._slots, self._tally = slots, tally
        self._facts = Facts(
            "linux", "x86_64", "3.11.7", "0.1.0", "light", cpus=slots, memory_bytes=2**33, slots=slots
        )
        self._held: deque[str] = deque()
        self._seq = self._seen = 0
        self._reported_at = 0.0
        self._unanswered: dict[int, int] = {}  # results in Reports that no Assign has answered
        self._load = {"slots": slots, "spare_cpu": slots, "memory_available_bytes": 2**32, "disk_free_bytes": 2**34}

    async def run(self, http: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> None:
        """Work until the connection ends; a worker without work says that it is there."""
        async with http.ws_connect(f"{url}/api/v1/link", headers=headers, max_msg_size=0) as socket:
            await socket.send_bytes(WorkerSession(self.name, "boot", self._facts).hello())
            await socket.receive()
            await self._report(socket, 0)
            while True:
                with suppress(TimeoutError):
                    frame = await socket.receive(timeout=max(0.0, self._next_at - time.monotonic()))
                    if frame.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                        return
                    self._hear(json.loads(frame.data))
                if time.monotonic() >= self._next_at:
                    await self._report(socket, self._take() if self._may_deliver else 0)

    @property
    def _may_deliver(self) -> bool:
        return bool(self._held) and not self._unanswered and self._tally.taken < self._tally.wanted

    @property
    def _next_at(self) -> float:
        """When to report, if nothing comes before."""
        return self._reported_at + (self._rest_s if self._may_deliver else BEAT_S)

    def _hear(self, message: dict[str, Any]) -> None:
        if message["kind"] != "assign":
            return
        self._seen = message["seq"]
        for seq in [seq for seq in self._unanswered if seq <= message["seen"]]:
            self._tally.acknowledge(self._unanswered.pop(seq))
        self._held.extend(run["attempt"] for run in message["run"])
        for attempt in message.get("cancel", ()):
            if attempt in self._held:
                self._held.remove(attempt)

    def _take(self) -> int:
        return self._tally.take(min(MAX_RESULTS, max(self._slots, (len(self._held) + 1) // 2), len(self._held)))

    async def _report(self, socket: aiohttp.ClientWebSocketResponse, done: int) -> None:
        self._seq += 1
        self._reported_at = time.monotonic()
        if done:
            self._unanswered[self._seq] = done
        self._tally.reports += 1
        results = [_result(self._held.popleft()) for _ in range(done)]
        held = list(self._held)
        holding = [{"attempt": one, "wall_s": 0.0, "cpu_s": 0.0, "frozen": False} for one in held[: self._slots]]
        waiting = ranges_of(map(AttemptId.parse, held[self._slots :]))
        report = {"seq": self._seq, "seen": self._seen, "holding": holding, "results": results, "load": self._load}
        report["waiting"] = waiting
        await socket.send_bytes(json.dumps(report | {"kind": "report"}, separators=(",", ":")).encode())


def _result(attempt: str) -> dict[str, Any]:
    return {
        "attempt": attempt,
        "outcome": "succeeded",
        "exit_code": 0,
        "wall_s": 0.02,
        "cpu_s": 0.02,
        "peak_memory_bytes": 1_000_000,
        "stdout": STDOUT,
        "stderr": EMPTY,
    }


@dataclass(frozen=True)
class Brought:
    tasks: int
    reports: int
    seconds: float


async def swarm(
    url: str,
    headers: dict[str, str],
    workers: int,
    slots: int,
    tally: Tally,
    *,
    rest_s: float = 0.0,
    trusted: ssl.SSLContext | bool = True,
) -> Brought:
    """Have the workers bring the results; each rests before it reports. ``trusted``: of an encrypted grid."""
    connector = aiohttp.TCPConnector(limit=0, ssl=trusted)
    async with aiohttp.ClientSession(connector=connector) as http:
        begin = time.perf_counter()
        running = [
            asyncio.create_task(LightWorker(f"light-{number}", slots, tally, rest_s).run(http, url, headers))
            for number in range(workers)
        ]
        over = asyncio.create_task(tally.until(tally.wanted))
        await asyncio.wait([over, *running], return_when=asyncio.FIRST_COMPLETED)
        seconds = time.perf_counter() - begin
        broken = {one.get_name(): one.exception() for one in running if one.done()}
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert over.done(), f"links broke: {broken}"
    return Brought(tally.acknowledged, tally.reports, seconds)
