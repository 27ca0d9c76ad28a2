"""The master, put together: store, engine, links and REST API, started and stopped in order."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from loopline_master.clock import Clock
from loopline_master.core.effects import Effects
from loopline_master.core.events import MasterStarted
from loopline_master.core.scheduler import Scheduler
from loopline_master.dashboard.pages import add_page
from loopline_master.engine import Engine
from loopline_master.engine import Links as EngineLinks
from loopline_master.files.blobs import Blobs
from loopline_master.files.retention import Keeper
from loopline_master.files.row_files import RowFiles
from loopline_master.forecaster import Forecaster
from loopline_master.http import api_docs
from loopline_master.http.auth import Auth, session_key, write_first_tokens
from loopline_master.http.live import client_link, streams
from loopline_master.http.openapi import document
from loopline_master.http.operations import Operation
from loopline_master.http.problems import problems
from loopline_master.http.routes import (
    files,
    history,
    jobs,
    joining,
    outputs,
    previews,
    programs,
    pruning,
    queue,
    samples,
    session,
    system,
    tasks,
    timeline,
    tokens,
    workers,
)
from loopline_master.http.services import SERVICES, Listeners, Services
from loopline_master.intake import with_files
from loopline_master.links import Links
from loopline_master.metrics import Metrics
from loopline_master.notify.notifier import Notifier
from loopline_master.notify.webhook import Webhooks, secret_in
from loopline_master.settings import MasterSettings
from loopline_master.store import Store, open_store
from loopline_master.subscriptions import Feeds
from loopline_shared.errors import LooplineError

log = logging.getLogger(__name__)

STOP_WITHIN_S = 3.0

SUBJECTS = (
    jobs,
    previews,
    queue,
    tasks,
    outputs,
    timeline,
    samples,
    streams,
    client_link,
    workers,
    programs,
    files,
    pruning,
    history,
    session,
    tokens,
    joining,
    system,
    api_docs,
)
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
    async with open_store(settings.database, keep_samples_s=settings.keep_samples_days * 86400.0) as store:
        services = await _services(settings, store)
        await write_first_tokens(services.auth, settings)
        working = asyncio.create_task(services.engine.run(services.links))
        watching = asyncio.create_task(services.metrics.watch_loop())
        foreseeing = asyncio.create_task(services.forecaster.watch(services.engine.news))
        foreseeing.add_done_callback(_complain_of("ETAs are no longer held against what came of them"))
        keeping = asyncio.create_task(services.keeper.keep())
        telling = asyncio.create_task(_notifier(settings, store, services).run())
        telling.add_done_callback(_complain_of("nobody is notified any more"))
        try:
            async with _listening(settings, web_app(services)) as url:
                yield Master(url, services, working)
        finally:
            watching.cancel()
            foreseeing.cancel()
            keeping.cancel()
            telling.cancel()
            services.engine.stop()
            await asyncio.wait([working])  # what it raises is for who runs the master


def _notifier(settings: MasterSettings, store: Store, services: Services) -> Notifier:
    webhooks = Webhooks(secret_in(settings.data_dir), settings.webhook_hosts)
    return Notifier(
        store, services.engine.news, Clock(services.scheduler.state.grid.now), webhooks, settings.notify_commands
    )


def _complain_of(what: str) -> Callable[[asyncio.Task[None]], None]:
    def complain(ended: asyncio.Task[None]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            log.error("%s, until the next start", what, exc_info=error)

    return complain


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
    app[api_docs.DOCUMENT] = api_docs.Document(lambda: json.dumps(document(OPERATIONS)))
    app.on_response_prepare.append(_harden)
    app.on_shutdown.append(_send_home)
    for operation in OPERATIONS:
        app.router.add_route(operation.method, operation.route, operation.serve)
    add_page(app)
    return app


async def _services(settings: MasterSettings, store: Store) -> Services:
    snapshot = await store.snapshot()
    scheduler, metrics = Scheduler(snapshot), Metrics()
    clock = Clock(after=snapshot.grid.now)
    engine = _MeteredEngine(metrics, scheduler, store, clock, max_inbox=settings.limits.max_inbox)
    engine.post(MasterStarted(settings.for_scheduler()))
    await engine.turn()
    limits = settings.limits
    blobs = Blobs(
        settings.data_dir / "files",
        limits.max_file_bytes,
        limits.disk_reserve_bytes,
        limits.max_unfinished_uploads,
    )
    rows = RowFiles(blobs, limits.max_tasks)
    feeds = Feeds()
    engine.news.tell(feeds)
    return Services(
        settings=settings,
        store=store,
        scheduler=scheduler,
        engine=engine,
        auth=Auth(store.tokens, session_key(settings), required=settings.tokens),
        blobs=blobs,
        rows=rows,
        keeper=Keeper(store, blobs, settings),
        links=Links(engine, settings, rows.complete, partial(with_files, blobs)),
        metrics=metrics,
        listeners=Listeners(limits.max_listeners),
        forecaster=Forecaster(scheduler, store.forecasts, clock),
        feeds=feeds,
    )


class _MeteredEngine(Engine):
    """Its steps are counted and timed."""

    def __init__(self, metrics: Metrics, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._metrics = metrics

    async def turn(self, links: EngineLinks | None = None) -> Effects:
        with self._metrics.step_s.time():
            effects = await super().turn(links)
        await asyncio.sleep(0)  # what is to be said goes out first
        self._metrics.count(effects)
        for task in effects.mismatches:
            log.warning("task %s: two of its results differ; `loopline explain %s` says more", task, task)
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
    """No browser guesses what an answer is, runs what a user wrote, or keeps what is not said to be for keeping."""
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
    response.headers.setdefault("Cache-Control", "no-store")


async def _send_home(app: web.Application) -> None:
    app[SERVICES].listeners.dismiss()
    app[SERVICES].links.close_all()
