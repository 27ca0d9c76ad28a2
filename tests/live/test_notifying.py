"""The end of a job is notified even if receiver or master fail in between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from loopline.local.local_grid import reserved
from loopline_shared.errors import LooplineError
from loopline_shared.spec import Notify
from tests.live.grid import Grid, wait_for


class Receiver:
    """Receives webhooks at a reserved port."""

    def __init__(self) -> None:
        self.port = reserved()
        self.url = f"http://127.0.0.1:{self.port.number}/hook"
        self.heard: list[tuple[dict[str, str], bytes]] = []

    async def hear(self, request: web.Request) -> web.Response:
        self.heard.append((dict(request.headers), await request.read()))
        return web.Response()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/hook", self.hear)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self.port.number).start()
            yield
        finally:
            await runner.cleanup()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.port.release()


async def notification(grid: Grid, job: int) -> str:
    return (await grid.job(job)).notification


@pytest.fixture
def settings(grid: Grid) -> Path:
    file = grid.folder / "loopline.toml"
    file.write_text('[master]\nwebhook_hosts = ["127.0.0.0/8"]\n')
    return file


async def test_webhook_is_delivered_after_receiver_and_master_were_down(
    grid: Grid, settings: Path, receiver: Receiver
) -> None:
    await grid.kill_master()
    await grid.start_master()
    await grid.start_worker("ant")
    job = await grid.submit("echo {i}", name="mine", notify=Notify(webhook=receiver.url))

    async def has_failed() -> bool:
        return "waiting after" in await notification(grid, job)

    await wait_for("the first try to fail", has_failed)
    await grid.kill_master()
    await grid.start_master()
    async with receiver.listening():

        async def is_told() -> bool:
            return await notification(grid, job) == "told"

        await wait_for("the webhook", is_told)
    ((headers, body),) = receiver.heard
    secret = await grid.client().webhook_secret()
    Webhook(secret).verify(body, {name.lower(): value for name, value in headers.items()})
    message = json.loads(body)
    assert (message["type"], message["data"]["name"], message["data"]["id"]) == ("job.succeeded", "mine", job)


async def test_private_addresses_are_not_called(grid: Grid, receiver: Receiver) -> None:
    await grid.start_worker("ant")
    async with receiver.listening():
        job = await grid.submit("exit 1", max_attempts=1, notify=Notify(webhook=receiver.url, on=["failed"]))

        async def is_refused() -> bool:
            return "is not a public address" in await notification(grid, job)

        await wait_for("the refusal", is_refused)
    assert receiver.heard == []


async def test_administrators_command_runs_with_the_message(grid: Grid, settings: Path) -> None:
    told = grid.folder / "told"
    settings.write_text(
        f'[master.notify_commands]\nnote = ["sh", "-c", "cat > {told}.part; mv {told}.part {told}"]\n'
    )
    await grid.kill_master()
    await grid.start_master()
    with pytest.raises(LooplineError, match="knows no command nite: did you mean note"):
        await grid.submit("true", notify=Notify(command="nite"))
    job = await grid.submit("true", notify=Notify(command="note"))
    await grid.client().cancel(job)

    async def is_there() -> bool:
        return told.exists()

    await wait_for("the command to have run", is_there)
    assert json.loads(told.read_text())["type"] == "job.cancelled"
