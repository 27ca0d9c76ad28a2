"""A fake master on a real port, with settable answers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.bodies import Problem

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def plain(body: Any) -> Any:
    if isinstance(body, BaseModel):
        return body.model_dump(mode="json")
    return [plain(item) for item in body] if isinstance(body, list) else body


def ok(body: Any, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        data = body if isinstance(body, bytes) else json.dumps(plain(body)).encode()
        return web.Response(body=data, status=status, content_type="application/json")

    return answer


def page(*items: Any, following: str | None = None) -> Answer:
    return ok({"items": plain(list(items)), "next": following})


def refuse(status: int, code: str = "no", detail: str = "it cannot be", hint: str = "", **more: Any) -> Answer:
    return ok(Problem(title="No", status=status, detail=detail, code=code, hint=hint, **more), status)


def hang_up(sent: bytes = b"") -> Answer:
    """Close the connection after this part of an answer."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport
        response = web.StreamResponse()
        if sent:
            await response.prepare(request)
            await response.write(sent)
        request.transport.close()
        return response

    return answer


@dataclass(frozen=True)
class Seen:
    what: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class FakeMaster:
    """``fake.on("GET /jobs/1", first, second)`` sets answers; the last one is repeated."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self._answers: dict[str, list[Answer]] = defaultdict(list)

    def on(self, what: str, *answers: Answer) -> None:
        self._answers[what] = list(answers)

    def answers(self, what: str) -> list[Answer]:
        return self._answers[what]

    def asked(self, what: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.what == what]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        what = f"{request.method} {request.path.removeprefix(API_PREFIX)}"
        body = await _body(request) if request.can_read_body else None
        self.seen.append(Seen(what, dict(request.query), dict(request.headers), body))
        answers = self._answers.get(what) or [refuse(404, "not_found", f"nothing at {what}")]
        return await (answers.pop(0) if len(answers) > 1 else answers[0])(request)


async def _body(request: web.Request) -> Any:
    return await request.json() if request.content_type == "application/json" else await request.read()


@contextmanager
def serving() -> Iterator[FakeMaster]:
    master, started, stop = FakeMaster(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", master.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        master.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait()
    yield master
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()
