"""huey on SQLite with fsync: submissions and results are on disk before they are acknowledged.

Two worker processes look for work after 1 ms at first, and after 10 ms at most; results are looked for every
millisecond, many at a time. Its defaults are 100 ms and more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huey import SqliteHuey
from turns import LINE, arguments, check, each_timed, increment, run_line, run_silent, take_turns, timed

DATABASE = "YARDSTICK_DATABASE"
AT_ONCE = 500  # variables that every SQLite takes
huey = SqliteHuey(filename=os.environ.setdefault(DATABASE, f"{tempfile.mkdtemp()}/huey.db"), fsync=True)
call, line, silent = map(huey.task(), (increment, run_line, run_silent))


@contextmanager
def consumer(slots: int) -> Iterator[None]:
    program = Path(sys.executable).with_name("huey_consumer")
    quickly = ["--delay", "0.001", "--max-delay", "0.01", "--backoff", "1.1"]
    process = subprocess.Popen(
        [program, "with_huey.huey", "-w", str(slots), "-k", "process", *quickly, "--no-periodic", "--quiet"],
        cwd=Path(__file__).parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def many(task: object, count: int) -> list[object]:
    """Results stay in the database: removing each would cost another transaction."""
    waiting = [task(number) for number in range(count)]
    found = []
    while waiting:
        some = huey.storage.peek_many([result.id for result in waiting[:AT_ONCE]])
        found += map(huey.serializer.deserialize, some.values())
        waiting = [result for result in waiting[:AT_ONCE] if result.id not in some] + waiting[AT_ONCE:]
        if not some:
            time.sleep(0.001)
    return found


def one(task: object, number: int) -> object:
    return task(number).get(blocking=True, max_delay=0.001, preserve=True)


def main() -> None:
    options = arguments()
    task = call if options.kind.endswith(("call", "calls")) else silent if options.silent else line
    if options.kind == "start":
        take_turns(lambda: timed(lambda: first_result(options.slots)))
        return
    with consumer(options.slots):
        many(task, 20)
        if options.kind.startswith("one"):
            take_turns(lambda: each_timed(lambda number: one(task, number), options.tasks))
        else:
            take_turns(lambda: timed(lambda: checked(many(task, options.tasks), options), options.tasks))


def checked(found: list[object], options: argparse.Namespace) -> None:
    if options.kind == "calls":
        check([sum(found)], options.tasks * (options.tasks + 1) // 2, 1)
    else:
        check(found, b"" if options.silent else LINE[1].encode() + b"\n", options.tasks)


def first_result(slots: int) -> None:
    with consumer(slots):
        one(line, 0)


if __name__ == "__main__":
    main()
