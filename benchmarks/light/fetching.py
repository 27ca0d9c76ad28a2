"""The part of a worker that fetches files, and a bare one: each a process that begins at a line on stdin.

    python -m benchmarks.light.fetching worker URL SHA256 FOLDER [CA]
    python -m benchmarks.light.fetching plain PORT FOLDER
    python -m benchmarks.light.fetching sendfile FILE     (the source of `plain`; prints its port)

It prints "ready", waits for a line, prints the processor time of the fetch when it has the file, and ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from pathlib import Path

_PIECE_BYTES = 2**18


async def as_worker(url: str, sha256: str, folder: Path, ca: Path | None) -> None:
    from loopline_worker.files.cache import Cache
    from loopline_worker.files.downloads import Downloads
    from loopline_worker.link.http_client import HttpClient
    from loopline_worker.settings import WorkerSettings

    async with HttpClient(WorkerSettings(master=url, data_dir=folder, ca_file=ca)) as gate:
        (folder / "cache").mkdir(parents=True)
        cache = Cache(folder / "cache", 2**40, Downloads(gate))
        began_s = _wait()
        async with cache.hold(sha256):
            pass
        print(time.process_time() - began_s, flush=True)


def plainly(port: int, folder: Path) -> None:
    """Download the response into a file without checking it."""
    folder.mkdir(parents=True)
    buffer = memoryview(bytearray(_PIECE_BYTES))
    began_s = _wait()
    with socket.create_connection(("127.0.0.1", port)) as link, (folder / "file").open("wb", buffering=0) as file:
        while count := link.recv_into(buffer):
            file.write(buffer[:count])
    print(time.process_time() - began_s, flush=True)


def serve(path: Path) -> None:
    """sendfile in a loop, a thread for each that asks."""

    def send(link: socket.socket) -> None:
        with link, path.open("rb") as file:
            link.sendfile(file)

    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            threading.Thread(target=send, args=(server.accept()[0],), daemon=True).start()


def _wait() -> float:
    """The processor time that was spent when it was time to begin."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.process_time()


if __name__ == "__main__":
    match sys.argv[1:]:
        case "worker", url, sha256, folder, *ca:
            asyncio.run(as_worker(url, sha256, Path(folder), Path(ca[0]) if ca else None))
        case "plain", port, folder:
            plainly(int(port), Path(folder))
        case "sendfile", file:
            serve(Path(file))
    os._exit(0)  # how long it takes to put everything away is no part of it
