"""A TCP proxy in this process that can forward, drop all data silently, or close connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Proxy:
    def __init__(self, port: int) -> None:
        self._to = port
        self._silent = False
        self.said_first = set[int]()
        """The first byte of each connection."""
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Start, and return the address to use instead of the master's."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def fall_silent(self) -> None:
        """Drop all data, also of new connections, without closing any: both ends see working connections."""
        self._silent = True

    def mend(self) -> None:
        """Forward new connections again, and close connections that have lost bytes."""
        self._silent = False
        self.hang_up()

    def hang_up(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def lead_to(self, port: int) -> None:
        """Forward to another server from now on."""
        self._to = port
        self.hang_up()

    async def stop(self) -> None:
        self.hang_up()
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(OSError):  # refused by the server: do not answer, like a computer that is down
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
            self._open.add(back)
            for source, sink, begins in ((reader, back, True), (there, writer, False)):
                task = asyncio.create_task(self._forward(source, sink, begins))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, begins: bool) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if begins:
                    self.said_first.add(data[0])
                    begins = False
                if not self._silent:
                    sink.write(data)
                    await sink.drain()
        if not self._silent:
            sink.transport.abort()
        self._open.discard(sink)
