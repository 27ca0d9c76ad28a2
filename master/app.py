"""The master, put together: store, engine, links and REST API, started and stopped in order."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from master.api import docs, files, jobs, joining, programs, streams, system, tasks, tokens, workers
from master.api.openapi import document
from master.api.operations import Operation
from master.api.problems import problems
from master.api.services import SERVICES, Listeners, Services
from master.auth import Auth, write_first_tokens
from master.blobs import Blobs
from master.clock import Clock
from master.engine import Engine
from master.links import Links
from master.metrics import Metrics
from master.scheduling.effects import Effects
from master.scheduling.events import MasterStarted
from master.scheduling.scheduler import Scheduler
from master.settings import MasterSettings
from master.store import Store, open_store
from shared.errors import LooplineError

STOP_WITHIN_S = 3.0

SUBJECTS = (jobs, tasks, streams, workers, programs, files, tokens, joining, system, docs)
OPERATIONS: list[Operation] = [operation for subject in SUBJECTS for operation in subject.routes]


@dataclass(frozen=True, slots=True)
class Master:
    """A master that serves."""

    url: str
    services: Services
    working: asyncio.Task[None]  # ends only when the engine breaks


@asynccontextmanager
async def serving(settings: MasterSettings) -> AsyncIterator[Master]:
    """A master at work, on its port; LooplineError where it cannot start. It ends bounded in time, and in order."""
    _make_home(settings.data_dir)
    async with open_store(settings.database) as store:
        services = await _services(settings, store)
        await write_first_tokens(services.auth, settings)
        working = asyncio.create_task(services.engine.run(services.links))
        watching = asyncio.create_task(services.metrics.watch_loop())
        try:
            async with _listening(settings, web_app(services)) as url:
                yield Master(url, services, working)
        finally:
            watching.cancel()
            services.engine.stop()
            await asyncio.wait([working])  # what it raises is for who runs the master


def _make_home(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        hint = "choose another with --data-dir"
        raise LooplineError("data_dir", f"cannot write into the folder {folder}: {error.strerror}", hint) from None


def web_app(services: Services) -> web.Application:
    app = web.Application(middlewares=[problems], client_max_size=services.settings.limits.max_body_bytes)
    app[SERVICES] = services
    app[docs.DOCUMENT] = json.dumps(document(OPERATIONS))
    app.on_response_prepare.append(_harden)
    app.on_shutdown.append(_send_home)
    for operation in OPERATIONS:
        app.router.add_route(operation.method, operation.path, operation.serve)
    return app


async def _services(settings: MasterSettings, store: Store) -> Services:
    snapshot = await store.snapshot()
    scheduler, metrics = Scheduler(snapshot), Metrics()
    clock = Clock(after=snapshot.grid.now)
    engine = _MeteredEngine(metrics, scheduler, store, clock, max_inbox=settings.limits.max_inbox)
    engine.post(MasterStarted(settings.for_scheduler()))
    await engine.turn()
    limits = settings.limits
    return Services(
        settings=settings,
        store=store,
        scheduler=scheduler,
        engine=engine,
        auth=Auth(store.tokens, required=settings.tokens),
        blobs=Blobs(settings.data_dir / "files", limits.max_file_bytes, limits.disk_reserve_bytes),
        links=Links(engine, settings),
        metrics=metrics,
        listeners=Listeners(limits.max_listeners),
    )


class _MeteredEngine(Engine):
    """Its steps are counted and timed."""

    def __init__(self, metrics: Metrics, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._metrics = metrics

    async def turn(self) -> Effects:
        with self._metrics.step_s.time():
            effects = await super().turn()
        self._metrics.count(effects)
        return effects


@asynccontextmanager
async def _listening(settings: MasterSettings, app: web.Application) -> AsyncIterator[str]:
    """The address where the app is served."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_WITHIN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port)
        try:
            await site.start()
        except OSError as error:
            raise _cannot_listen(settings, error) from error
        yield f"http://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{site.port}"
    finally:
        await runner.cleanup()


def _cannot_listen(settings: MasterSettings, error: OSError) -> LooplineError:
    place = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        hint = "is a master running already? Stop it, or choose another port with --port"
        return LooplineError("port_in_use", f"{place} is in use by another program", hint)
    hint = "choose another --host or --port"
    return LooplineError("cannot_listen", f"cannot listen on {place}: {error.strerror}", hint)


async def _harden(_request: web.Request, response: web.StreamResponse) -> None:
    """No browser guesses what an answer is, or keeps one that does not say that it may be kept."""
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Cache-Control", "no-store")


async def _send_home(app: web.Application) -> None:
    app[SERVICES].listeners.dismiss()
    app[SERVICES].links.close_all()
