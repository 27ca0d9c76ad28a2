"""The master itself: health, metrics, the audit of the guarantee, and the accuracy of ETAs."""

from __future__ import annotations

import asyncio

from aiohttp import web

from loopline_master.core.scheduler import Scheduler
from loopline_master.forecaster import Forecaster
from loopline_master.http.auth import OPEN, READERS, SCRAPERS
from loopline_master.http.operations import Routes
from loopline_master.metrics import MEDIA_TYPE, Metrics
from loopline_master.peers.exchange import Exchange
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.timings import READY_WITHIN_S
from loopline_shared.errors import LooplineError
from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.bodies import ForecastReport, Health, PassingReport

routes = Routes("system", prefix="")


@routes(f"GET {API_PREFIX}/passing", READERS)
async def get_passing(store: Store, settings: MasterSettings) -> PassingReport:
    """Return the audit of the order guarantee, from the stored rows: `passings` must be 0."""
    return await store.passings(settings.scheduler)


@routes(f"GET {API_PREFIX}/forecasts", READERS)
async def get_forecasts(forecaster: Forecaster, store: Store) -> ForecastReport:
    """Return the accuracy of past ETAs and of the planned starts of gangs.

    Of completed jobs, these are the shares that had completed by the p50 and by the p90 that users were told at
    certain moments. Of gangs, how many promised starts were kept, and why others were not.
    """
    return forecaster.report().model_copy(update={"plans": await store.jobs.kept_plans()})


@routes("GET /healthz", OPEN)
async def get_health() -> Health:
    """Report that the process runs."""
    return Health(status="ok")


@routes("GET /readyz", OPEN, declines=(503,))
async def get_readiness(store: Store) -> Health:
    """Report that the master works: the database can be written, and the scheduler takes steps."""
    await _check(store)
    return Health(status="ok")


@routes("GET /metrics", SCRAPERS, media_type="text/plain")
async def get_metrics(
    store: Store, settings: MasterSettings, metrics: Metrics, scheduler: Scheduler, exchange: Exchange
) -> web.Response:
    """Return counters and gauges for Prometheus."""
    exchange.measure()
    audit = await store.passings(settings.scheduler, limit=0)
    return web.Response(body=metrics.render(scheduler, audit), headers={"Content-Type": MEDIA_TYPE})


async def _check(store: Store) -> None:
    """Raises LooplineError if the database takes no writing, or takes too long."""
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await store.check()
    except TimeoutError:
        message = f"the database has not answered within {READY_WITHIN_S:g} s"
        raise LooplineError("not_ready", message, status=503) from None
