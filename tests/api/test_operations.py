"""Handlers are given what their signatures name: the caller, the request, and parts of the master by type."""

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
    """Say that all is well."""
    raise NotImplementedError(clockwork, caller, request)


def test_parts_are_found_by_type_and_are_one_of_each() -> None:
    clockwork = Clockwork()
    parts = Parts(clockwork, 3)
    assert parts[Clockwork] is clockwork
    assert parts[int] == 3
    with pytest.raises(AssertionError, match="two parts of type Clockwork"):
        parts.add(Clockwork())


async def test_a_master_has_all_parts_that_handlers_take(shared_master: Bench) -> None:
    for operation in all_operations():
        operation.check_parts(shared_master.parts)


def test_a_part_that_a_handler_takes_and_no_master_has_is_named() -> None:
    (operation,) = routes
    operation.check_parts(Parts(Clockwork()))
    with pytest.raises(AssertionError, match="with_clockwork takes Clockwork, of which the master has none"):
        operation.check_parts(Parts())
    assert not operation.parameters, "what is handed in is not asked of the client"


def test_no_handler_is_given_the_parts_themselves() -> None:
    """A handler's signature says what it needs."""
    assert not [operation.id for operation in all_operations() if Parts in operation.handed_in.values()]
