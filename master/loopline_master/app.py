"""The master, put together: store, engine, links and REST API, started and stopped in order."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from loopline_master import data_folder
from loopline_master.assembly import assemble
from loopline_master.background import Background, Service
from loopline_master.certificates.encryption import Encryption
from loopline_master.commands.limit_commands import LimitCommands
from loopline_master.commands.wake_commands import WakeCommands
from loopline_master.core.events import BATCH
from loopline_master.engine import Engine
from loopline_master.files.bucket import AWAY
from loopline_master.files.retention import Retention
from loopline_master.forecaster import Forecaster
from loopline_master.history.forgetting import Forgetting
from loopline_master.history.summing import Summing
from loopline_master.http.auth import Auth
from loopline_master.http.edge.listener import Awaited, standing_in
from loopline_master.http.late_routes import LateRoutes
from loopline_master.http.operations import Parts
from loopline_master.http.token_files import write_ca, write_first_tokens
from loopline_master.http.web_app import listening, web_app
from loopline_master.links import WorkerLinks
from loopline_master.log_bound import LogBound
from loopline_master.metrics import Growth, Metrics
from loopline_master.notify.notifier import Notifier
from loopline_master.passing import passes
from loopline_master.peers.live_network import LiveNetwork
from loopline_master.settings import MasterSettings
from loopline_master.store import StoreBroken, open_store
from loopline_master.store.database import is_sqlite, parse_url
from loopline_master.store.lock import Epoch
from loopline_master.transfers.solver_thread import SolverThread
from loopline_shared.errors import LooplineError
from loopline_shared.job.requirements import Requirements
from loopline_shared.protocol import link_session
from loopline_shared.spec import JobSpec

log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _STANDBY_PAUSE_S = 0.5, 5.0, 1.0
"""Before the master starts over; twice as long each time."""


async def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True)
class Master:
    """A master that serves."""

    url: str
    parts: Parts
    working: asyncio.Task[None]  # ends only if the engine fails


class OnStart(Protocol):
    """Called at each start; ``is_again``: after the database or the bucket was away."""

    def __call__(self, master: Master, *, is_again: bool) -> None: ...


async def keep_serving(settings: MasterSettings, stop: asyncio.Event, on_start: OnStart) -> None:
    """Serve until ``stop`` is set, and start again whenever the database was away.

    Raises LooplineError if an operator must act. The port answers 503 while the database or the bucket of files is
    away.
    """
    starts, pause_s, said, epoch = 0, _FIRST_PAUSE_S, "", Epoch()
    async with AsyncExitStack() as stand_in:
        while True:
            try:
                async with serving(settings, stand_in.aclose, epoch) as master:
                    on_start(master, is_again=starts > 0)
                    starts, pause_s, said = starts + 1, _FIRST_PAUSE_S, ""
                    await _first(stop, master.working)
                if not stop.is_set():
                    master.working.result()
                return
            except LooplineError as error:
                if stop.is_set() or not _may_wait(error, waits=settings.standby or starts > 0):
                    raise
                if error.message != said:
                    log.warning("%s; trying again until it is free or back", said := error.message)
                    if error.code == AWAY:
                        log.warning("%s", error.hint)
                await stand_in.aclose()
                cause = error.cause if isinstance(error, StoreBroken) else ""
                await stand_in.enter_async_context(standing_in(settings, _awaited(error), cause))
            if await _first(stop, asyncio.create_task(asyncio.sleep(pause_s))):
                return
            pause_s = min(2 * pause_s, _STANDBY_PAUSE_S if settings.standby else _LONGEST_PAUSE_S)


async def _first(stop: asyncio.Event, task: asyncio.Task[None]) -> bool:
    """Wait for the event or the end of the task. Return True if the event is set."""
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return stop.is_set()


def _may_wait(error: LooplineError, *, waits: bool) -> bool:
    """True if the master may recover by itself; its own lock may outlive a lost connection for a while."""
    return passes(error) or (error.code == "database_in_use" and waits)


def _awaited(error: LooplineError) -> Awaited:
    return "bucket" if error.code == AWAY else "database"


@asynccontextmanager
async def serving(
    settings: MasterSettings, on_open: Callable[[], Awaitable[None]] = _nothing, epoch: Epoch | None = None
) -> AsyncIterator[Master]:
    """Run a master on its port; at the end it stops in order, within a bounded time.

    ``on_open`` is called before the port opens. ``epoch``: of this master's last start. Raises LooplineError if the
    master cannot start.
    """
    _refuse_standby_without_server(settings)
    data_folder.make(settings.data_dir)
    has_worked = data_folder.has_worked(settings)
    keep_samples_s = settings.keep_samples_days * 86400.0
    async with open_store(
        settings.database,
        keep_samples_s=keep_samples_s,
        standby=settings.standby,
        is_new=not has_worked,
        epoch=epoch,
    ) as store:
        await data_folder.refuse_losses(settings, store)
        parts = await assemble(settings, store)
        engine = parts[Engine]
        await write_first_tokens(parts[Auth], settings)
        write_ca(parts[Encryption], settings)
        await on_open()
        working = asyncio.create_task(engine.run(parts[WorkerLinks]))
        watching = asyncio.create_task(store.watch(parts[WorkerLinks].close_all))
        watching.add_done_callback(partial(_stop_if_broken, engine))
        app = web_app(parts)
        try:
            with parts[Background].running(_services(parts)):
                async with listening(settings, app) as url:
                    later = "what a start left for later is made when it is needed"
                    with parts[Background].running([Service("preparation", later, lambda: _prepare(parts))]):
                        yield Master(url, parts, working)
        finally:
            watching.cancel()
            engine.stop()
            parts[SolverThread].close()
            await asyncio.wait([working])  # the caller, which runs the master, gets its error


def _stop_if_broken(engine: Engine, watching: asyncio.Task[None]) -> None:
    if not watching.cancelled() and isinstance(error := watching.exception(), Exception):
        engine.stop(error)


def _services(parts: Parts) -> list[Service]:
    """Return the services beside the engine."""
    engine = parts[Engine]
    return [
        Service("loop_lag", "the lag of the event loop is not measured", parts[Metrics].watch_loop),
        Service("growth", "the growth of its data is not measured", parts[Growth].run),
        Service(
            "forecasts",
            "ETAs are not compared with what came true",
            lambda: parts[Forecaster].watch(engine.changes),
        ),
        Service("retention", "files that no job needs are not removed", parts[Retention].run),
        Service("forgetting", "old jobs and workers are not forgotten", parts[Forgetting].run),
        Service("summing", "large jobs are not summed up", parts[Summing].run),
        Service("limit_commands", "limits are not renewed by their commands", parts[LimitCommands].run),
        Service("wakes", "sleeping computers are not woken by the master", parts[WakeCommands].run),
        Service("notifications", "notifications are not sent", parts[Notifier].run),
        Service(
            "tokens",
            "uses of tokens are not noted, and links do not end when a token expires",
            parts[Auth].times.run,
        ),
        Service("certificates", "certificates are not renewed", parts[Encryption].keep_fresh),
        Service("log_bound", "the event log is not kept within its bound", parts[LogBound].run),
        Service("clock", "the computer's clock is not followed", engine.watch_clock),
        Service("samples", "the history of computers without news has gaps", engine.keep_sampling),
        Service("network", "nothing is learnt about the network from transfers", parts[LiveNetwork].run),
    ]


async def _prepare(parts: Parts) -> None:
    """Build whatever the first worker and the first job need, and the rest after a pause."""
    models = (Requirements.model_rebuild, JobSpec.model_rebuild)
    for make in (link_session.prepare, parts[LateRoutes].make_first, BATCH.rebuild, *models):
        make()
        await asyncio.sleep(0)
    await parts[LateRoutes].make_rest()
    gc.freeze()  # objects made by the start live as long as the process


def _refuse_standby_without_server(settings: MasterSettings) -> None:
    if settings.standby and is_sqlite(parse_url(settings.database)):
        hint = "give both masters the --database-url of a PostgreSQL, and a --data-dir that both see"
        raise LooplineError("standby", "a standby needs a database that both masters reach", hint)
