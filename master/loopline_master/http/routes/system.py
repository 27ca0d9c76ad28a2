"""The master itself: is it well, what has it done, has it kept its promise, and this API's description."""

from __future__ import annotations

from aiohttp import web

from loopline_master.http.auth import OPEN, READERS
from loopline_master.http.operations import Routes
from loopline_master.http.services import Services
from loopline_master.metrics import MEDIA_TYPE
from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.bodies import ForecastReport, Health, PassingReport

routes = Routes("system", prefix="")


@routes(f"GET {API_PREFIX}/passing", READERS)
async def get_passing(services: Services) -> PassingReport:
    """The audit of the order guarantee, from the stored rows: `passings` must be 0."""
    return await services.store.passings(services.settings.order)


@routes(f"GET {API_PREFIX}/forecasts", READERS)
async def get_forecasts(services: Services) -> ForecastReport:
    """How well past ETAs held: of completed jobs, the shares that had completed by the p50 and the p90 that were told
    at certain moments.
    """
    return services.forecaster.report()


@routes("GET /healthz", OPEN)
async def get_health() -> Health:
    """The process is there."""
    return Health(status="ok")


@routes("GET /readyz", OPEN, declines=(503,))
async def get_readiness(services: Services) -> Health:
    """The master does its work: the database can be written, and the scheduler goes on."""
    await services.check()
    return Health(status="ok")


@routes("GET /metrics", READERS, media_type="text/plain")
async def get_metrics(services: Services) -> web.Response:
    """Counters and gauges for Prometheus."""
    audit = await services.store.passings(services.settings.order, limit=0)
    return web.Response(body=services.metrics.render(services.scheduler, audit), headers={"Content-Type": MEDIA_TYPE})
