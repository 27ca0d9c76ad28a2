"""Lazy start: routes, adapters and authorities are built when first needed."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from functools import partial
from itertools import product

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from loopline_master.core.events import BATCH, Batch, MasterStarted, MasterStoodStill, as_logged
from loopline_master.core.kernel.scheduler_settings import SchedulerSettings
from loopline_master.http import late_routes
from loopline_master.http.late_routes import FIRST, LateRoutes
from loopline_master.http.operations import Operation, Parts
from loopline_master.http.routes import SUBJECTS, all_operations
from loopline_shared.terminal.import_blocker import without_authorities

LATER = """
import sys
import loopline_master.__main__
from loopline_master.core.events import BATCH
from loopline_shared.spec import JobSpec
from loopline_shared.scalar import Spec
assert not [name for name in sys.modules if name.startswith("loopline_master.http.routes.")]
assert "loopline_master.http.openapi" not in sys.modules
assert not BATCH.pydantic_complete
made = [model.__name__ for model in Spec.__subclasses__() if model.__pydantic_complete__]
assert not made, made
"""


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> web.UrlDispatcher:
    """Return the router of an application, with all parts assumed present."""
    monkeypatch.setattr(Operation, "check_parts", lambda operation, parts: None)
    monkeypatch.setattr(late_routes, "_PAUSE_S", 0)
    return web.UrlDispatcher()


async def found(router: web.UrlDispatcher, method: str, path: str) -> web.AbstractRoute | web.HTTPException:
    match = await router.resolve(make_mocked_request(method, path))
    return match.http_exception or match.route


def test_importing_the_master_builds_only_what_a_start_needs() -> None:
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def test_each_operation_is_found_by_a_fresh_router(router: web.UrlDispatcher) -> None:
    """The router builds subjects until one has the path; no earlier one may claim it."""
    for operation in all_operations():
        late = web.UrlDispatcher()
        LateRoutes(late, Parts())
        path = operation.path.replace("{", "").replace("}", "")
        route = await found(late, operation.method, path)
        assert isinstance(route, web.AbstractRoute), path
        assert isinstance(route.handler, partial)
        assert route.handler.func.__self__ is operation, path


async def test_only_requested_routes_are_built(router: web.UrlDispatcher) -> None:
    late = LateRoutes(router, Parts())
    assert isinstance(await found(router, "GET", "/api/v1/link"), web.AbstractRoute)
    assert len(late._waiting) == len(SUBJECTS) + 2 - len(["live.streams", "routes.workers"])
    late.make_first()
    assert set(FIRST).isdisjoint(map(str, late._waiting))
    assert isinstance(await found(router, "HEAD", "/api/v1/jobs/1"), web.AbstractRoute)


async def test_unknown_paths_and_methods_are_refused(router: web.UrlDispatcher) -> None:
    late = LateRoutes(router, Parts())
    for _, (method, path) in product(("at first", "once all is made"), (("GET", "/no/such"), ("POST", "/healthz"))):
        refused = await found(router, method, path)
        assert isinstance(refused, web.HTTPNotFound if path == "/no/such" else web.HTTPMethodNotAllowed)
        if isinstance(refused, web.HTTPMethodNotAllowed):
            assert refused.allowed_methods == {"GET", "HEAD"}
    assert not late._waiting


async def test_remaining_routes_are_built_after_a_while(router: web.UrlDispatcher) -> None:
    late = LateRoutes(router, Parts())
    await late.make_rest()
    assert not late._waiting
    assert isinstance(await found(router, "GET", "/"), web.AbstractRoute)


def test_log_line_of_a_start_equals_its_generic_encoding() -> None:
    settings = SchedulerSettings(overdrawn_after=float("inf"))
    start, other = MasterStarted(settings), MasterStoodStill()
    for events in ([start], [start, other], [other], []):
        batch = Batch(5.25, list(events))
        assert as_logged(batch) == BATCH.dump_json(batch).decode()


@pytest.mark.parametrize("before", [None, "/etc/no-such-file"])
def test_authorities_are_skipped_only_within_the_context(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if before:
        monkeypatch.setenv("SSL_CERT_FILE", before)
    with without_authorities():
        assert not ssl.create_default_context().cert_store_stats()["x509_ca"]
    assert os.environ.get("SSL_CERT_FILE") == before
