"""A cable that can be cut: TCP through this process, which forwards, falls silent or hangs up."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Proxy:
    def __init__(self, port: int) -> None:
        self._to = port
        self._silent = False
        self.said_first = set[int]()
        """The first byte of each who has connected."""
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """The address to connect to in the master's place."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def fall_silent(self) -> None:
        """Swallow everything, also from new connections, and let both ends believe that all is well."""
        self._silent = True

    def mend(self) -> None:
        """Work again, for new connections: those that lost bytes are hung up."""
        self._silent = False
        self.hang_up()

    def hang_up(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def lead_to(self, port: int) -> None:
        """Lead to another server from now on."""
        self._to = port
        self.hang_up()

    async def stop(self) -> None:
        self.hang_up()
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(OSError):  # refused there: here nobody answers, as where a computer is gone
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
