"""Workers: list, drain, explain, the network between them, and their links."""

from __future__ import annotations

from dataclasses import replace

from aiohttp import web

from loopline_master.certificates.worker_keys import Bearer
from loopline_master.core.events import WakeRequested, WorkerDrained, WorkerForgotten, WorkerUndrained
from loopline_master.core.explain.explain_transfers import files_coming
from loopline_master.core.explain.explain_units import gpus_used
from loopline_master.core.explain.explain_worker import explain_worker
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_master.engine import Engine
from loopline_master.http.auth import ADMINS, READERS, WORKERS, Caller
from loopline_master.http.live.open_streams import OpenStreams
from loopline_master.http.lookups import found
from loopline_master.http.operations import Routes
from loopline_master.http.parameters import Cursor, DrainNow, DrainReason, Limit, TestWake, WithLastHour, WorkerName
from loopline_master.links import WorkerLinks
from loopline_master.peers.exchange import Exchange
from loopline_master.peers.live_network import LiveNetwork
from loopline_master.peers.measurement import Measurement
from loopline_master.peers.ways import with_ways
from loopline_master.settings import Limits
from loopline_master.store import Store
from loopline_shared.errors import LooplineError
from loopline_shared.model import Load, WithheldGpu
from loopline_shared.rest.bodies import Explanation, MeasurementView, NetworkView, Page, WorkerView

routes = Routes("workers")

_ZEROS = bytes(2**22)
"""A probe is sent in ranges of this length at most."""


@routes("GET /workers", READERS, is_shared=True)
async def list_workers(
    store: Store,
    engine: Engine,
    links: WorkerLinks,
    scheduler: Scheduler,
    limits: Limits,
    cursor: Cursor | None = None,
    limit: Limit = 100,
    last_hour: WithLastHour = False,
) -> Page[WorkerView]:
    """List workers, by name."""
    size = limits.page_size(limit)
    page = await store.workers.page(cursor=cursor, limit=size, last_hour=last_hour)
    return page.model_copy(update={"items": [_as_of_now(view, engine, links, scheduler) for view in page.items]})


@routes("GET /workers/{worker}", READERS, is_shared=True)
async def get_worker(
    store: Store,
    engine: Engine,
    links: WorkerLinks,
    scheduler: Scheduler,
    worker: WorkerName,
    last_hour: WithLastHour = False,
) -> WorkerView:
    """Return one worker."""
    view = found(await store.workers.detail(worker, last_hour=last_hour), f"worker {worker}")
    return _as_of_now(view, engine, links, scheduler)


@routes("GET /workers/{worker}/explain", READERS, is_shared=True)
async def explain_this_worker(scheduler: Scheduler, exchange: Exchange, worker: WorkerName) -> Explanation:
    """Explain what a worker does, or why it does nothing."""
    explained = found(explain_worker(scheduler, worker), f"worker {worker}")
    return with_ways(explained, exchange, files_coming(scheduler.state, worker))


@routes("POST /workers/{worker}/drain", ADMINS)
async def drain_worker(
    engine: Engine, store: Store, worker: WorkerName, reason: DrainReason = "", now: DrainNow = False
) -> WorkerView:
    """Drain a worker: it finishes its tasks and gets no new ones. If it drains already, only the reason changes."""
    return await _steer(engine, store, WorkerDrained(worker, reason, now))


@routes("POST /workers/{worker}/undrain", ADMINS)
async def undrain_worker(engine: Engine, store: Store, worker: WorkerName) -> WorkerView:
    """End the draining of a worker: it gets tasks again."""
    return await _steer(engine, store, WorkerUndrained(worker))


@routes("POST /workers/{worker}/wake", ADMINS, declines=(409,))
async def wake_worker(engine: Engine, store: Store, worker: WorkerName, test: TestWake = False) -> WorkerView:
    """Wake the computer of a worker that is asleep; or suspend an idle one, and wake it, to test whether it works."""
    return await _steer(engine, store, WakeRequested(worker, test))


@routes("POST /workers/{worker}/forget", ADMINS, declines=(409,))
async def forget_worker(engine: Engine, store: Store, worker: WorkerName) -> WorkerView:
    """Forget a disconnected worker and its token: it has to join again. The answer shows its last state."""
    view = found(await store.workers.detail(worker), f"worker {worker}")
    await engine.ask(WorkerForgotten(worker))
    return view


@routes("GET /network", READERS, is_shared=True)
async def get_network(network: LiveNetwork, measurement: Measurement) -> NetworkView:
    """Return the tree of switches and hosts, the capacity of each link and its source, and the current flows."""
    return network.view(measurement.view)


@routes("POST /network/measure", ADMINS, status=202, declines=(409,))
async def measure_network(measurement: Measurement) -> MeasurementView:
    """Measure an idle grid by probes between its computers. It stops as soon as a task starts or an owner is back."""
    return measurement.start()


@routes("GET /network/probe", WORKERS, is_documented=False)
async def get_probe(request: web.Request) -> web.Response:
    """Return a range of zeros, for a worker that measures its connection from the master."""
    try:
        span = request.http_range
        asked = range(span.start or 0, span.stop or 0)
    except ValueError:
        asked = range(0)
    if not 0 < len(asked) <= len(_ZEROS):
        raise LooplineError("range", f"a probe has a range of 1 to {len(_ZEROS)} bytes", "ask for less", 416)
    return web.Response(status=206, body=_ZEROS[: len(asked)], content_type="application/octet-stream")


@routes("GET /link", WORKERS, is_documented=False)
async def open_link(
    links: WorkerLinks, streams: OpenStreams, caller: Caller, request: web.Request
) -> web.WebSocketResponse:
    """Open the WebSocket of a worker; loopline_shared/protocol defines its messages."""
    with streams.of(caller):
        return await links.serve(request, Bearer(caller.token, caller.worker, caller.offers))


def _as_of_now(view: WorkerView, engine: Engine, links: WorkerLinks, scheduler: Scheduler) -> WorkerView:
    """Add the last Report, the refused links and the resources in use to the view of a worker's row."""
    said: dict[str, object] = {"twin": twin} if (twin := links.twin(view.name)) else {}
    if refused := links.refused(view.name):
        said["refused"] = refused
    if left_out := links.left_out(view.name):
        said["left_out"] = left_out
    if heard := engine.kept_back.last_heard(view.name):
        said |= {"load": heard.load, "reported_at": heard.at, "lease_until": heard.lease_until}
    if view.facts.resources and view.name in scheduler.state.workers:
        counts, names = scheduler.state.own(CountedUnits), (one.name for one in view.facts.resources)
        said["resources_used"] = {name: used for name in names if (used := counts.in_use(view.name, name))}
        said["gpus_used"] = gpus_used(scheduler.state, view.name)
        if claimed := counts.claimed_elsewhere(view.name):
            load = heard.load if heard else view.load or Load(0)
            others = [WithheldGpu(gpu, reason) for gpu, reason in claimed.items()]
            said["load"] = replace(load, withheld_gpus=(*load.withheld_gpus, *others))
    return view.model_copy(update=said) if said else view


async def _steer(engine: Engine, store: Store, event: WorkerDrained | WorkerUndrained | WakeRequested) -> WorkerView:
    await engine.ask(event)
    return found(await store.workers.detail(event.worker), f"worker {event.worker}")
