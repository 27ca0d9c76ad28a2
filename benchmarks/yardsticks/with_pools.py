"""Pools that come with Python: multiprocessing.Pool, ProcessPoolExecutor, asyncio's subprocesses; and xargs, GNU
parallel.

python with_pools.py KIND --variant pool|executor|asyncio|xargs|parallel
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from turns import (
    LINE,
    SILENT,
    arguments,
    check,
    each_timed,
    increment,
    run_line,
    run_silent,
    take_turns,
    timed,
)


def main() -> None:
    options = arguments()
    if options.variant in ("pool", "executor"):
        pools(options)
    elif options.variant == "asyncio":
        asyncio_loop(options)
    else:
        shell(options)


def pools(options: argparse.Namespace) -> None:
    """Chunks as large as the documentation advises, for many calls; processes one by one."""
    is_call = options.kind.endswith(("call", "calls"))
    task, expected = of(is_call, options)
    if options.kind == "start":
        take_turns(lambda: timed(lambda: first_result(options.variant, options.slots)))
        return
    with made(options.variant, options.slots) as pool:
        chunk = max(1, options.tasks // (options.slots * 16)) if is_call else 1
        many: Callable[..., object] = pool.imap if options.variant == "pool" else pool.map
        one = (
            (lambda n: pool.apply(task, (n,)))
            if options.variant == "pool"
            else (lambda n: pool.submit(task, n).result())
        )
        for number in range(8):
            one(number)
        if options.kind.startswith("one"):
            take_turns(lambda: each_timed(one, options.tasks))
        else:
            take_turns(
                lambda: timed(lambda: expected(many(task, range(options.tasks), chunksize=chunk)), options.tasks)
            )


def of(is_call: bool, options: argparse.Namespace) -> tuple[Callable[..., object], Callable[..., None]]:
    """Return the work of a task, and a check of all results."""
    if is_call:
        return increment, lambda found: check([sum(found)], options.tasks * (options.tasks + 1) // 2, 1)
    task, line = (run_silent, b"") if options.silent else (run_line, LINE[1].encode() + b"\n")
    return task, lambda found: check(found, line, options.tasks)


def made(variant: str, slots: int) -> multiprocessing.pool.Pool | ProcessPoolExecutor:
    return multiprocessing.Pool(slots) if variant == "pool" else ProcessPoolExecutor(slots)


def first_result(variant: str, slots: int) -> None:
    with made(variant, slots) as pool:
        list(pool.map(run_line, [0]))


def asyncio_loop(options: argparse.Namespace) -> None:
    async def one(_: int) -> bytes:
        keep = None if options.silent else subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(SILENT if options.silent else LINE), stdin=subprocess.DEVNULL, stdout=keep, close_fds=False
        )
        return (await process.communicate())[0] or b""

    async def lane(found: list[bytes], numbers: list[int]) -> None:
        while numbers:
            found.append(await one(numbers.pop()))

    async def many() -> None:
        found: list[bytes] = []
        numbers = list(range(options.tasks))
        await asyncio.gather(*(lane(found, numbers) for _ in range(options.slots)))
        check(found, b"" if options.silent else LINE[1].encode() + b"\n", options.tasks)

    with asyncio.Runner() as runner:
        runner.run(watched_by_descriptors())
        if options.kind.startswith("one"):
            take_turns(lambda: each_timed(lambda number: runner.run(one(number)), options.tasks))
        else:
            take_turns(lambda: timed(lambda: runner.run(many()), options.tasks))


async def watched_by_descriptors() -> None:
    """Watch processes by descriptors, as Python 3.12 does by default; earlier versions use a thread for each
    process.
    """
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)


def shell(options: argparse.Namespace) -> None:
    """Output is kept, all of it together; ``-n 1`` is a process for each line that is read."""
    command = SILENT if options.silent else LINE
    words = {
        "xargs": ["xargs", "-n", "1", f"-P{options.slots}", *command],
        "parallel": [
            shutil.which("parallel") or "parallel",
            "--will-cite",
            "-n0",
            f"-j{options.slots}",
            *map(quoted, command),
        ],
    }[options.variant]

    def many(count: int) -> None:
        numbers = "\n".join(map(str, range(count))) + "\n"
        done = subprocess.run(words, input=numbers, capture_output=True, text=True, check=True)
        if not options.silent:
            check([line.startswith(LINE[1]) for line in done.stdout.splitlines()], True, count)

    if options.kind.startswith("one"):
        take_turns(lambda: each_timed(lambda _: many(1), options.tasks))
    else:
        take_turns(lambda: timed(partial(many, options.tasks), options.tasks))


def quoted(word: str) -> str:
    return f"'{word}'"


if __name__ == "__main__":
    main()
