"""Handover of the port from the server that answers for a waiting master to the master itself."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
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


@pytest.fixture
async def listening(tmp_path: Path) -> AsyncIterator[tuple[socket.socket, Undecided]]:
    """A port that speaks TLS."""
    settings, undecided = MasterSettings.load(data_dir=tmp_path, tls="on"), Undecided()
    server = web.Server(lambda request: web.Response())  # type: ignore[arg-type,return-value]
    listener = Listener(settings, Encryption(settings), app=server, refusal=server, undecided=undecided)
    with socket.create_server(("127.0.0.1", 0)) as port:
        port.setblocking(False)
        accepting = asyncio.create_task(listener.accept(port))
        yield port, undecided
        accepting.cancel()
        await asyncio.wait([accepting])


@pytest.mark.parametrize("turns", range(5))
async def test_connection_dropped_as_its_handshake_ends_leaves_its_file_number_free(
    listening: tuple[socket.socket, Undecided], turns: int
) -> None:
    (port, undecided), loop = listening, asyncio.get_running_loop()
    caller = socket.create_connection(port.getsockname(), timeout=60)
    caller.setblocking(False)
    context = ssl._create_unverified_context()
    with context.wrap_socket(caller, do_handshake_on_connect=False) as encrypted:
        while True:
            with suppress(ssl.SSLWantReadError):
                encrypted.do_handshake()
                break
            await asyncio.sleep(0)
        for _ in range(turns):  # in one of them the master ends its part
            await asyncio.sleep(0)
        undecided._drop(next(iter(undecided._all)))
        for _ in range(3):
            await asyncio.sleep(0)
        others = [socket.socket() for _ in range(10)]
        for one in others:
            loop.add_reader(one, print)  # RuntimeError if a transport still uses this number
            loop.remove_reader(one)
            one.close()
        encrypted.settimeout(60)
        with suppress(ConnectionResetError, ssl.SSLEOFError):
            assert await asyncio.to_thread(encrypted.recv, 1) == b""


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
        with socket.create_connection(listening.getsockname(), timeout=60) as caller:
            loop.call_soon(accepting.cancel)  # the listener ends in the loop iteration that accepts the caller
            await asyncio.wait([accepting])
            listening.close()
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(caller.recv, 1)
    assert not wrong
