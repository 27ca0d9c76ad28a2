"""Handlers receive the arguments that their signatures name: caller, request, and parts of the master by type."""

from __future__ import annotations

import pytest
from aiohttp import web

from loopline_master.http.auth import READERS, Caller
from loopline_master.http.operations import Parts, Routes
from loopline_master.http.routes import all_operations
from loopline_shared.rest.bodies import Health
from tests.api.bench import Bench

routes = Routes("test")


class Clockwork:
    """A part that no master has."""


@routes("GET /with-clockwork", READERS)
async def with_clockwork(clockwork: Clockwork, caller: Caller, request: web.Request) -> Health:
    """A handler that takes this part."""
    raise NotImplementedError(clockwork, caller, request)


def test_parts_are_found_by_their_unique_type() -> None:
    clockwork = Clockwork()
    parts = Parts(clockwork, 3)
    assert parts[Clockwork] is clockwork
    assert parts[int] == 3
    with pytest.raises(AssertionError, match="two parts of type Clockwork"):
        parts.add(Clockwork())


async def test_master_has_all_parts_that_handlers_take(shared_master: Bench) -> None:
    for operation in all_operations():
        operation.check_parts(shared_master.parts)


def test_missing_part_of_a_handler_is_named() -> None:
    (operation,) = routes
    operation.check_parts(Parts(Clockwork()))
    with pytest.raises(AssertionError, match="with_clockwork takes Clockwork, which the master does not have"):
        operation.check_parts(Parts())
    assert not operation.parameters, "injected arguments are not parameters of the request"


def test_no_handler_takes_the_container_of_parts() -> None:
    """A handler's signature must name the parts that it uses."""
    assert not [operation.id for operation in all_operations() if Parts in operation.handed_in.values()]
