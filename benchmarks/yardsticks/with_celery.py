"""Celery with Redis as broker and for results: workers that execute what they fetch themselves, and prefetch.

``fsync``: Redis has every submission and every result on disk before it answers (appendfsync always), and a task is
acknowledged once its result is there, so that none is lost with a worker. Without, nothing is written to disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celery import Celery
from turns import LINE, arguments, check, each_timed, increment, run_line, run_silent, take_turns, timed

URL = "YARDSTICK_REDIS"
app = Celery("yardstick", broker=os.environ.get(URL), backend=os.environ.get(URL))
app.conf.update(
    worker_prefetch_multiplier=200,
    worker_disable_rate_limits=True,
    task_acks_late=bool(os.environ.get("YARDSTICK_FSYNC")),
    result_expires=None,
    task_store_errors_even_if_ignored=False,
    broker_connection_retry_on_startup=True,
)
call, line, silent = (app.task(name=f.__name__)(f) for f in (increment, run_line, run_silent))


@contextmanager
def redis(fsync: bool) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        disk = ["--appendonly", "yes", "--appendfsync", "always"] if fsync else ["--appendonly", "no"]
        program = shutil.which("redis-server") or "redis-server"
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", *disk]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        if not any("Ready to accept connections" in said for said in process.stdout):
            raise SystemExit("redis-server did not start")
        os.environ[URL] = app.conf.broker_url = app.conf.result_backend = f"redis://127.0.0.1:{port}/0"
        try:
            yield
        finally:
            process.terminate()
            process.wait()


@contextmanager
def workers(slots: int) -> Iterator[None]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    command = [sys.executable, "-m", "celery", "-A", "with_celery", "worker", "--pool", "solo", *quiet]
    started = [
        subprocess.Popen([*command, "-n", f"w{number}"], cwd=Path(__file__).parent, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
        for number in range(slots)
    ]  # fmt: skip
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def many(task: object, count: int) -> list[object]:
    """Submitted over one connection; fetched many at a time."""
    with app.producer_or_acquire() as producer:
        waiting = [task.apply_async((number,), producer=producer) for number in range(count)]
    found = []
    backend = app.backend
    while waiting:
        keys = [backend.get_key_for_task(result.id) for result in waiting[:500]]
        values = backend.mget(keys)
        found += [backend.decode_result(value)["result"] for value in values if value]
        left = [result for result, value in zip(waiting, values, strict=False) if not value]
        if len(left) == len(values):
            time.sleep(0.001)
        waiting = left + waiting[500:]
    return found


def main() -> None:
    options = arguments()
    is_durable = options.variant == "fsync"
    os.environ["YARDSTICK_FSYNC"] = "1" if is_durable else ""
    task = call if options.kind.endswith(("call", "calls")) else silent if options.silent else line
    if options.kind == "start":
        take_turns(lambda: timed(lambda: first_result(is_durable, options.slots)))
        return
    with redis(is_durable), workers(options.slots):
        many(task, 20)
        if options.kind.startswith("one"):
            take_turns(lambda: each_timed(lambda number: task.delay(number).get(), options.tasks))
        else:
            take_turns(lambda: timed(lambda: checked(many(task, options.tasks), options), options.tasks))


def checked(found: list[object], options: argparse.Namespace) -> None:
    if options.kind == "calls":
        check([sum(found)], options.tasks * (options.tasks + 1) // 2, 1)
    else:
        check(found, b"" if options.silent else LINE[1].encode() + b"\n", options.tasks)


def first_result(is_durable: bool, slots: int) -> None:
    with redis(is_durable), workers(slots):
        line.delay().get()


if __name__ == "__main__":
    main()
