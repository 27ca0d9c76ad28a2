"""Parsl: its HighThroughputExecutor (an interchange and worker processes), or its threads: quick, but no grid.

Workers prefetch, nothing is encrypted, monitored or remembered; so nothing survives the program either.

    with_parsl.py KIND --variant htex|threads
"""

from __future__ import annotations

import argparse
import tempfile

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor, ThreadPoolExecutor
from parsl.providers import LocalProvider
from turns import LINE, arguments, check, each_timed, increment, run_line, run_silent, take_turns, timed


def config(options: argparse.Namespace, folder: str) -> Config:
    if options.variant == "threads":
        executor = ThreadPoolExecutor(max_threads=options.slots)
    else:
        executor = HighThroughputExecutor(
            max_workers_per_node=options.slots, cores_per_worker=0.01, prefetch_capacity=100, encrypted=False,
            address="127.0.0.1", poll_period=1, worker_logdir_root=folder,
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )  # fmt: skip
    return Config(
        [executor], run_dir=folder, strategy="none", initialize_logging=False, usage_tracking=0,
        exit_mode="skip",
    )  # fmt: skip


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if options.kind == "start":
            take_turns(lambda: timed(lambda: first_result(options, folder)))
            return
        parsl.load(config(options, folder))
        call, line, silent = map(parsl.python_app, (increment, run_line, run_silent))
        for future in [call(number) for number in range(20)]:
            future.result()
        app = call if options.kind.endswith(("call", "calls")) else silent if options.silent else line
        if options.kind.startswith("one"):
            take_turns(lambda: each_timed(lambda number: app(number).result(), options.tasks))
        else:
            take_turns(lambda: timed(lambda: many(app, options), options.tasks))
        parsl.dfk().cleanup()


def many(app: object, options: argparse.Namespace) -> None:
    found = [future.result() for future in [app(number) for number in range(options.tasks)]]
    if options.kind == "calls":
        check([sum(found)], options.tasks * (options.tasks + 1) // 2, 1)
    else:
        check(found, b"" if options.silent else LINE[1].encode() + b"\n", options.tasks)


def first_result(options: argparse.Namespace, folder: str) -> None:
    parsl.load(config(options, folder))
    parsl.python_app(run_line)().result()
    parsl.dfk().cleanup()
    parsl.clear()


if __name__ == "__main__":
    main()
