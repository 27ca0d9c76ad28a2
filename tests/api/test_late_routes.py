"""What a start leaves for later: routes, adapters and authorities, each made once somebody needs it."""

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
from loopline_shared.spec import JobSpec, Spec
assert not [name for name in sys.modules if name.startswith("loopline_master.http.routes.")]
assert "loopline_master.http.openapi" not in sys.modules
assert not BATCH.pydantic_complete
made = [model.__name__ for model in Spec.__subclasses__() if model.__pydantic_complete__]
assert not made, made
"""


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> web.UrlDispatcher:
    """Of an application whose parts are taken to be there."""
    monkeypatch.setattr(Operation, "check_parts", lambda operation, parts: None)
    monkeypatch.setattr(late_routes, "_PAUSE_S", 0)
    return web.UrlDispatcher()


async def found(router: web.UrlDispatcher, method: str, path: str) -> web.AbstractRoute | web.HTTPException:
    match = await router.resolve(make_mocked_request(method, path))
    return match.http_exception or match.route


def test_importing_a_master_makes_nothing_that_a_start_can_do_without() -> None:
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def test_each_operation_is_found_whatever_was_made_before_it(router: web.UrlDispatcher) -> None:
    """By a fresh router, which makes subjects until one has the path: none before may take it for its own."""
    for operation in all_operations():
        late = web.UrlDispatcher()
        LateRoutes(late, Parts())
        path = operation.path.replace("{", "").replace("}", "")
        route = await found(late, operation.method, path)
        assert isinstance(route, web.AbstractRoute), path
        assert isinstance(route.handler, partial)
        assert route.handler.func.__self__ is operation, path


async def test_only_what_is_asked_for_is_made(router: web.UrlDispatcher) -> None:
    late = LateRoutes(router, Parts())
    assert isinstance(await found(router, "GET", "/api/v1/link"), web.AbstractRoute)
    assert len(late._waiting) == len(SUBJECTS) + 2 - len(["live.streams", "routes.workers"])
    late.make_first()
    assert set(FIRST).isdisjoint(map(str, late._waiting))
    assert isinstance(await found(router, "HEAD", "/api/v1/jobs/1"), web.AbstractRoute)


async def test_paths_and_methods_that_do_not_exist_are_refused_as_ever(router: web.UrlDispatcher) -> None:
    late = LateRoutes(router, Parts())
    for _, (method, path) in product(("at first", "once all is made"), (("GET", "/no/such"), ("POST", "/healthz"))):
        refused = await found(router, method, path)
        assert isinstance(refused, web.HTTPNotFound if path == "/no/such" else web.HTTPMethodNotAllowed)
        if isinstance(refused, web.HTTPMethodNotAllowed):
            assert refused.allowed_methods == {"GET", "HEAD"}
    assert not late._waiting


async def test_the_rest_is_made_after_a_while(router: web.UrlDispatcher) -> None:
    late = LateRoutes(router, Parts())
    await late.make_rest()
    assert not late._waiting
    assert isinstance(await found(router, "GET", "/"), web.AbstractRoute)


def test_a_start_is_logged_as_all_else() -> None:
    settings = SchedulerSettings(overdrawn_after=float("inf"))
    start, other = MasterStarted(settings), MasterStoodStill()
    for events in ([start], [start, other], [other], []):
        batch = Batch(5.25, list(events))
        assert as_logged(batch) == BATCH.dump_json(batch).decode()


@pytest.mark.parametrize("before", [None, "/etc/no-such-file"])
def test_authorities_are_left_unread_only_for_a_while(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if before:
        monkeypatch.setenv("SSL_CERT_FILE", before)
    with without_authorities():
        assert not ssl.create_default_context().cert_store_stats()["x509_ca"]
    assert os.environ.get("SSL_CERT_FILE") == before
