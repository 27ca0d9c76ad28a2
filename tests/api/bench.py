"""A real master in this process, on a free port, and fake workers that report results without running commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from loopline_master.app import serving
from loopline_master.engine import Clock
from loopline_master.http.auth import Auth
from loopline_master.http.operations import Parts
from loopline_master.settings import MasterSettings
from loopline_shared.model import Facts, Held, Load, Outcome, Output, Result
from loopline_shared.protocol.link_session import WorkerSession
from loopline_shared.protocol.worker_link import Assign, Run, Welcome
from loopline_shared.rest.access import Role

FACTS = Facts("linux", "x86_64", "3.11.7", "0.1.0", "test", cpus=4, memory_bytes=2**33, slots=4)
ROLES: tuple[Role, ...] = ("admin", "user", "reader", "worker", "scraper")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    content: bytes
    body: Any  # the decoded JSON, if it is JSON


@dataclass
class Bench:
    """A master, and a client of each role."""

    url: str
    parts: Parts
    http: aiohttp.ClientSession
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def pass_time(self, seconds: float) -> None:
        """Advance the master's clock, by less than a minute in total, or the master restarts."""
        self.parts[Clock]._start += seconds

    async def ask(self, method: str, path: str, role: str | None = "admin", **more: Any) -> Answer:
        """Send a request with the token of ``role``; None: without a token."""
        headers = {**self.headers(role), **more.pop("headers", {})}
        async with self.http.request(method, self.address(path), headers=headers, **more) as response:
            content = await response.read()
            is_json = response.content_type in ("application/json", "application/problem+json")
            return Answer(
                response.status,
                response.headers,
                content,
                await response.json(content_type=None) if is_json else None,
            )

    async def get(self, path: str, role: str | None = "admin", **more: Any) -> Any:
        return (await self.ask("GET", path, role, **more)).body

    async def submit(self, role: str = "admin", **spec: Any) -> int:
        answer = await self.ask("POST", "/jobs", role, json={"command": ["work"], **spec})
        assert answer.status == 201, answer.content
        return int(answer.body["id"])

    def headers(self, role: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}

    def address(self, path: str) -> str:
        """Return the URL of a path below the API's prefix, or of ``//healthz`` outside it."""
        return self.url + (path[1:] if path.startswith("//") else f"/api/v1{path}")

    @asynccontextmanager
    async def stream(self, path: str, role: str = "admin") -> AsyncIterator[aiohttp.StreamReader]:
        """Open a streamed response."""
        async with self.http.get(self.address(path), headers=self.headers(role)) as response:
            assert response.status == 200, await response.text()
            yield response.content

    @asynccontextmanager
    async def worker(
        self, name: str = "w1", slots: int = 4, facts: Facts = FACTS, **more: Any
    ) -> AsyncIterator[FakeWorker]:
        """Run a fake worker that is connected and has reported."""
        async with self.http.ws_connect(self.address("/link"), headers=self.headers("worker")) as socket:
            worker = FakeWorker(socket, WorkerSession(name, "boot", facts), Load(slots), **more)
            await worker.open()
            serving = asyncio.create_task(worker.serve())
            try:
                yield worker
            finally:
                serving.cancel()


@asynccontextmanager
async def webhook_receiver(hear: Callable[[web.Request], Awaitable[None]]) -> AsyncIterator[str]:
    """Accept all POST requests, and yield the address."""

    async def answer(request: web.Request) -> web.Response:
        await hear(request)
        return web.Response()

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running_master(folder: Path, known: dict[str, str] | None = None, **settings: Any) -> AsyncIterator[Bench]:
    """Run a master; ``known``: tokens that the folder's database already has for each role."""
    async with (
        serving(MasterSettings(data_dir=folder, port=0, **settings)) as master,
        aiohttp.ClientSession() as http,
    ):
        bench = Bench(master.url, master.parts, http, dict(known or {}))
        for role in ROLES if not known and master.parts[MasterSettings].tokens else ():
            bench.tokens[role] = (await master.parts[Auth].create(f"the-{role}", role)).secret
        yield bench


@dataclass
class FakeWorker:
    socket: aiohttp.ClientWebSocketResponse
    session: WorkerSession
    load: Load
    does: Callable[[Run], Result | None] = lambda run: done(run)  # None: runs forever
    holding: dict[Any, Run] = field(default_factory=dict)

    async def open(self) -> None:
        await self.socket.send_bytes(self.session.hello())
        welcome = self.session.receive(await self.socket.receive_bytes())
        assert isinstance(welcome, Welcome), welcome
        await self.report()

    async def report(self, *results: Result) -> None:
        _, frame = self.session.report([Held(attempt) for attempt in self.holding], results, self.load)
        await self.socket.send_bytes(frame)

    async def serve(self) -> None:
        async for message in self.socket:
            assign = self.session.receive(message.data)
            if isinstance(assign, Assign):
                await self._carry_out(assign)

    async def _carry_out(self, assign: Assign) -> None:
        for attempt in assign.cancel:
            self.holding.pop(attempt, None)
        self.holding |= {run.attempt: run for run in assign.run}
        if not await self.look_again() and (assign.run or assign.cancel):
            await self.report()

    async def look_again(self) -> bool:
        """Report attempts that have ended; return whether there were any."""
        results = [result for run in list(self.holding.values()) if (result := self.does(run))]
        for result in results:
            del self.holding[result.attempt]
        if results:
            await self.report(*results)
        return bool(results)


def done(run: Run, stdout: bytes = b"done\n", **more: Any) -> Result:
    return Result(run.attempt, Outcome.SUCCEEDED, exit_code=0, stdout=Output(len(stdout), data=stdout), **more)


async def until(fact: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Return the first true answer of ``fact``, which is polled."""
    async with asyncio.timeout(within_s):
        while not (answer := await fact()):
            await asyncio.sleep(0.01)
    return answer
