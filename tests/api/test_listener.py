"""Handover of the port from the server that answers for a waiting master to the master itself."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from loopline_master.certificates.encryption import Encryption
from loopline_master.http.edge.listener import Listener
from loopline_master.http.edge.undecided import Undecided
from loopline_master.settings import MasterSettings


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Disable collection of reference cycles, as a master does at its start."""
    gc.disable()
    yield
    gc.enable()


async def test_connection_accepted_as_the_listener_ends_is_closed(tmp_path: Path, without_collections: None) -> None:
    settings = MasterSettings.load(data_dir=tmp_path)
    server = web.Server(lambda request: web.Response())  # type: ignore[arg-type,return-value]
    listener = Listener(
        settings, Encryption(settings, is_waiting=True), app=server, refusal=server, undecided=Undecided()
    )
    wrong = list[dict[str, Any]]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: wrong.append(context))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        accepting = asyncio.create_task(listener.accept(listening))
        await asyncio.sleep(0)
        with socket.create_connection(listening.getsockname(), timeout=10) as caller:
            loop.call_soon(accepting.cancel)  # the listener ends in the loop iteration that accepts the caller
            await asyncio.wait([accepting])
            listening.close()
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(caller.recv, 1)
    assert not wrong
