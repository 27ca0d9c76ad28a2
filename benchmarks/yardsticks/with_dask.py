"""Dask distributed: a scheduler and workers of one thread each, in processes of their own.

``tuned``: one submission goes to the scheduler in batches of a thousand, workers are sent all tasks at once, and work
stealing is off. Lost tasks are computed again, but everything is in memory and does not survive the scheduler.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from typing import Any

import dask
from distributed import Client, LocalCluster
from turns import LINE, arguments, check, each_timed, increment, run_line, run_silent, take_turns, timed

TUNED = {
    "distributed.scheduler.worker-saturation": "inf",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.idle-timeout": None,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.diagnostics.nvml": False,
}


def cluster(slots: int, folder: str) -> LocalCluster:
    return LocalCluster(
        n_workers=slots,
        threads_per_worker=1,
        dashboard_address=None,
        local_directory=folder,
        silence_logs=logging.ERROR,
    )


def main() -> None:
    options = arguments()
    if options.variant == "tuned":
        dask.config.set(TUNED)
    with tempfile.TemporaryDirectory() as folder:
        if options.kind == "start":
            take_turns(lambda: timed(lambda: first_result(options.slots, folder)))
            return
        with cluster(options.slots, folder) as dasks, Client(dasks) as client:
            client.gather(client.map(increment, range(100), pure=False))
            if options.kind.startswith("one"):
                task = increment if options.kind == "one-call" else run_line
                take_turns(lambda: each_timed(lambda n: client.submit(task, n, pure=False).result(), options.tasks))
            else:
                take_turns(lambda: timed(lambda: many(client, options), options.tasks))


def many(client: Client, options: argparse.Namespace) -> None:
    more: dict[str, Any] = {"batch_size": 1000} if options.variant == "tuned" else {}
    numbers = range(options.tasks)
    if options.kind == "calls":
        values = client.gather(client.map(increment, numbers, pure=False, **more))
        check([sum(values)], options.tasks * (options.tasks + 1) // 2, 1)
    else:
        task, line = (run_silent, b"") if options.silent else (run_line, LINE[1].encode() + b"\n")
        check(client.gather(client.map(task, numbers, pure=False, **more)), line, options.tasks)


def first_result(slots: int, folder: str) -> None:
    with cluster(slots, folder) as dasks, Client(dasks) as client:
        client.submit(run_line).result()


if __name__ == "__main__":
    main()
