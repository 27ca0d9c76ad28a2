"""The floor: the minimum of a durable master-worker system in Python.

A master (asyncio, TCP, SQLite with synchronous=FULL) commits every submission and every result before it answers;
commits are in groups, at most one is in flight. Two workers, small processes of one slot each, hold a window of
tasks ahead. The client sends one submission and is pushed the results. There are no users, no leases, no policies, no
limits, no restarts: any real system of this design costs more.

    python floor.py processes|calls|one-process|one-call|start [--tasks N] [--silent]
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turns import LINE, SILENT, arguments, check, each_timed, increment, take_turns, timed

WINDOW = {"process": 32, "call": 2000}
"""Tasks that a worker holds at a time."""
LENGTH = struct.Struct("!I")
SCHEMA = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
CREATE TABLE jobs (id INTEGER PRIMARY KEY, what BLOB);
CREATE TABLE calls (job INTEGER, number INTEGER, call BLOB, PRIMARY KEY (job, number)) WITHOUT ROWID;
CREATE TABLE results (job INTEGER, number INTEGER, result BLOB, PRIMARY KEY (job, number)) WITHOUT ROWID;
"""


def framed(message: object) -> bytes:
    body = pickle.dumps(message, 5)
    return LENGTH.pack(len(body)) + body


class Line:
    """Blocking end of a connection, for the client and the workers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def send(self, message: object) -> None:
        self._socket.sendall(framed(message))

    def receive(self) -> Any:
        head = self._stream.read(LENGTH.size)
        return pickle.loads(self._stream.read(LENGTH.unpack(head)[0])) if head else None

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


# The master.


class Master:
    def __init__(self, database: str) -> None:
        self._database = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
        self._database.executescript(SCHEMA)
        self._thread = ThreadPoolExecutor(1)
        self._jobs = 0
        self._queue: deque[tuple[int, int, object]] = deque()
        self._workers: dict[asyncio.StreamWriter, int] = {}  # with how many tasks each may still take
        self._clients: dict[int, asyncio.StreamWriter] = {}  # by job
        self._submitted: list[tuple[int, object, asyncio.StreamWriter]] = []
        self._results: list[tuple[int, int, bytes]] = []
        self._news = asyncio.Event()

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        while True:
            await self._news.wait()
            self._news.clear()
            submitted, self._submitted = self._submitted, []
            results, self._results = self._results, []
            await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, submitted, results)
            self._speak(submitted, results)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                body = await reader.readexactly(LENGTH.unpack(await reader.readexactly(LENGTH.size))[0])
                self._heard(writer, *pickle.loads(body))
        except (asyncio.IncompleteReadError, ConnectionError):
            self._workers.pop(writer, None)

    def _heard(self, writer: asyncio.StreamWriter, what: str, content: Any) -> None:
        if what == "worker":
            self._workers[writer] = content
            self._hand_out()
            return
        if what == "submit":
            self._jobs += 1
            self._submitted.append((self._jobs, content, writer))
        else:
            self._results += content
            self._workers[writer] += len(content)
            self._hand_out()
        self._news.set()

    def _commit(self, submitted: list[Any], results: list[Any]) -> None:
        self._database.execute("BEGIN")
        for job, content, _ in submitted:
            is_calls = isinstance(content, list)
            self._database.execute(
                "INSERT INTO jobs VALUES (?, ?)", (job, None if is_calls else pickle.dumps(content))
            )
            if is_calls:
                rows = ((job, number, call) for number, call in enumerate(content))
                self._database.executemany("INSERT INTO calls VALUES (?, ?, ?)", rows)
        self._database.executemany("INSERT INTO results VALUES (?, ?, ?)", results)
        self._database.execute("COMMIT")

    def _speak(self, submitted: list[Any], results: list[Any]) -> None:
        """Send acknowledgements of everything that is on disk now."""
        for job, content, client in submitted:
            self._clients[job] = client
            if isinstance(content, list):
                self._queue.extend((job, number, call) for number, call in enumerate(content))
            else:
                command, count = content
                self._queue.extend((job, number, command) for number in range(count))
            client.write(framed(("accepted", job)))
        self._hand_out()
        of_job: dict[int, list[tuple[int, bytes]]] = {}
        for job, number, result in results:
            of_job.setdefault(job, []).append((number, result))
        for job, some in of_job.items():
            self._clients[job].write(framed(("results", some)))

    def _hand_out(self) -> None:
        for writer, room in self._workers.items():
            if self._queue and room:
                share = min(room, -(-len(self._queue) // len(self._workers)))
                writer.write(framed([self._queue.popleft() for _ in range(share)]))
                self._workers[writer] = room - share


# A worker.


def work(port: int, kind: str) -> None:
    line = Line(port)
    line.send(("worker", WINDOW[kind]))
    file = os.memfd_create("stdout")
    while (tasks := line.receive()) is not None:
        if kind == "call":
            line.send(("results", [(job, number, called(call)) for job, number, call in tasks]))
            continue
        for job, number, command in tasks:
            line.send(("results", [(job, number, ran(command, file))]))


def called(call: bytes) -> bytes:
    function, arguments = pickle.loads(call)
    return pickle.dumps(function(*arguments), 5)


def ran(command: list[str], file: int) -> bytes:
    keeps = command[0] != SILENT[0]
    pid = os.posix_spawn(
        command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, file, 1)] if keeps else ()
    )
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"a task ended with {status}")
    if not keeps:
        return b""
    output = os.pread(file, 65536, 0)
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    return output


# The client.


@contextmanager
def system(kind: str, slots: int) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:

        def start(*arguments: str) -> subprocess.Popen[str]:
            flags = [] if "COUNTS_INTO" in os.environ else ["-S"]  # the counting module is loaded by site
            command = [sys.executable, *flags, __file__, *arguments]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        started = [start("master", str(Path(folder, "floor.db")))]
        try:
            assert started[0].stdout
            port = int(started[0].stdout.readline())
            started += [start("worker", str(port), kind) for _ in range(slots)]
            line = Line(port)
            yield line
            line.close()
        finally:
            for process in started:
                process.kill()
            for process in started:
                process.communicate()


def results_of(line: Line, content: object, count: int) -> list[bytes]:
    line.send(("submit", content))
    results: list[bytes] = []
    while len(results) < count:
        what, some = line.receive()
        if what == "results":
            results += (result for _, result in some)
    return results


def first_result() -> None:
    with system("process", 2) as line:
        results_of(line, (LINE, 1), 1)


def main() -> None:
    if sys.argv[1] == "master":
        asyncio.run(Master(sys.argv[2]).serve())
        return
    if sys.argv[1] == "worker":
        work(int(sys.argv[2]), sys.argv[3])
        return
    options = arguments()
    if options.kind == "start":
        take_turns(lambda: timed(first_result))
        return
    command, line_of = (SILENT, b"") if options.silent else (LINE, LINE[1].encode() + b"\n")
    is_call = options.kind.endswith("call") or options.kind == "calls"
    with system("call" if is_call else "process", options.slots) as line:

        def calls() -> None:
            content = [pickle.dumps((increment, (number,)), 5) for number in range(options.tasks)]
            values = [pickle.loads(result) for result in results_of(line, content, options.tasks)]
            check([sum(values)], options.tasks * (options.tasks + 1) // 2, 1)

        def processes() -> None:
            check(results_of(line, (command, options.tasks), options.tasks), line_of, options.tasks)

        def one(number: int) -> None:
            results_of(line, [pickle.dumps((increment, (number,)), 5)] if is_call else (command, 1), 1)

        one(0)
        if options.kind.startswith("one"):
            take_turns(lambda: each_timed(one, options.tasks))
        else:
            take_turns(lambda: timed(calls if is_call else processes, options.tasks))


if __name__ == "__main__":
    main()
