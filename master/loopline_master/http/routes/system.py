"""The master itself: health, metrics, the audit of the guarantee, and the accuracy of ETAs."""

from __future__ import annotations

import asyncio

from aiohttp import web

from loopline_master.background import Background
from loopline_master.core.kernel.index.index import UserJobs
from loopline_master.core.scheduler import Scheduler
from loopline_master.forecaster import Forecaster
from loopline_master.http.auth import OPEN, READERS, SCRAPERS
from loopline_master.http.operations import Routes
from loopline_master.metrics import MEDIA_TYPE, Growth, Metrics
from loopline_master.metrics.user_costs import Cost
from loopline_master.peers.exchange import Exchange
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.timings import READY_WITHIN_S
from loopline_shared import __version__
from loopline_shared.errors import LooplineError
from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.bodies import ForecastReport, Health, MasterView, PassingReport, UserCost

routes = Routes("system", prefix="")

_MOST_USERS = 50
_FREE = Cost()


@routes(f"GET {API_PREFIX}/passing", READERS)
async def get_passing(store: Store, settings: MasterSettings) -> PassingReport:
    """Return the audit of the order guarantee, from the stored rows: `passings` must be 0."""
    return await store.passings(settings.scheduler)


@routes(f"GET {API_PREFIX}/forecasts", READERS)
async def get_forecasts(forecaster: Forecaster, store: Store) -> ForecastReport:
    """Return the accuracy of past ETAs and of the planned starts of gangs.

    For completed jobs: the shares that had completed by the p50 and the p90 shown to users at certain moments. For
    gangs: how many promised starts were kept, and why others were not.
    """
    return forecaster.report().model_copy(update={"plans": await store.jobs.kept_plans()})


@routes(f"GET {API_PREFIX}/master", READERS)
async def get_master(scheduler: Scheduler, metrics: Metrics, growth: Growth) -> MasterView:
    """Return the master's health: the duration of its steps, the growth of its data, and the users that cost most."""
    return MasterView(
        version=__version__,
        started_at=metrics.started_at,
        lag_s=metrics.lag_s,
        steps=metrics.latest.view(),
        sizes=await growth.sizes(),
        users=_heaviest(metrics.costs.last_hour(), scheduler.state.index.users),
    )


@routes("GET /healthz", OPEN)
async def get_health() -> Health:
    """Report that the process runs."""
    return Health(status="ok")


@routes("GET /readyz", OPEN, declines=(503,))
async def get_readiness(store: Store, background: Background) -> Health:
    """Report that the master works: the database can be written, the scheduler takes steps, and no service fails."""
    await _check(store)
    background.check()
    return Health(status="ok")


@routes("GET /metrics", SCRAPERS, media_type="text/plain")
async def get_metrics(
    store: Store, settings: MasterSettings, metrics: Metrics, growth: Growth, scheduler: Scheduler, exchange: Exchange
) -> web.Response:
    """Return counters and gauges for Prometheus."""
    exchange.measure()
    metrics.set_sizes(await growth.sizes())
    audit = await store.passings(settings.scheduler, limit=0)
    return web.Response(body=metrics.render(scheduler, audit), headers={"Content-Type": MEDIA_TYPE})


def _heaviest(costs: dict[str, Cost], live: UserJobs) -> list[UserCost]:
    """Return the users that cost most, and all users with jobs in the grid."""
    names = {*costs, *live.counts}
    found = [
        UserCost(
            user=name,
            step_s=costs.get(name, _FREE).step_s,
            requests=costs.get(name, _FREE).requests,
            jobs=live.of(name)[0],
            tasks=live.of(name)[1],
        )
        for name in names
    ]
    return sorted(found, key=lambda one: (-one.step_s, -one.requests, one.user))[:_MOST_USERS]


async def _check(store: Store) -> None:
    """Raises LooplineError if the database cannot be written, or not in time."""
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await store.check()
    except TimeoutError:
        message = f"the database has not answered within {READY_WITHIN_S:g} s"
        raise LooplineError("not_ready", message, status=503) from None
