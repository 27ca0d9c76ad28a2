"""Shares with wrong sizes: can a user get more of a live grid by declaring a wrong size, or by resubmitting?

Five users of equal shares compete for two workers of one slot. Their jobs have

- true sizes;
- a size of 1e-6 s, although each task computes for 3 s;
- a size of 1e9 s;
- no size, and a hundred short tasks before the long ones;
- no size; the job is cancelled every few seconds and submitted again.

The measure is the CPU time of ended attempts, as reported by workers (`GET /history`), beside the slot time on the
users' accounts (`GET /shares`), which includes running tasks.

    python benchmarks/master/wrong_sizes.py [--full] [--seconds N] [--policy NAME ...] [--json]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.grid import Grid, grid
from benchmarks.harness.tables import answer, parser, progress, table
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec

TASKS, RESUBMIT_EVERY_S = 20_000, 5.0
KINDS = ("true sizes", "declares 1e-6 s", "declares 1e9 s", "short, then long", "resubmits")


@dataclass(frozen=True, slots=True)
class Row:
    """The part of all use that a user had."""

    policy: str
    user: str
    tasks: int
    cpu: float
    slot_time: float


def specs() -> dict[str, JobSpec]:
    """Return the job of each user by kind."""
    short_then_long = 'test "$0" -le 100 || ' + burn(10.0)
    return dict(
        zip(
            KINDS,
            (
                job(burn(1.0), size=TASKS * 1.0),
                job(burn(3.0), size=1e-6),
                job(burn(3.0), size=1e9),
                job(short_then_long),
                job(burn(2.0)),
            ),
            strict=True,
        )
    )


def burn(seconds: float) -> str:
    """Return a shell command that computes for this time."""
    return f"{{ timeout {seconds:g} sh -c 'while :; do :; done'; true; }}"


def job(script: str, size: float | None = None) -> JobSpec:
    return JobSpec(command=["sh", "-c", script, "{i}"], parameters={"i": Range(range=[1, TASKS])}, size=size)


async def rows_of(policy: str, seconds: float) -> list[Row]:
    async with (
        grid(1, "--policy", policy, workers=("w1", "w2")) as one,
        one.client() as admin,
        AsyncExitStack() as clients,
    ):
        users = {
            kind: await clients.enter_async_context(await user(one, admin, f"user{number}"))
            for number, kind in enumerate(KINDS, start=1)
        }
        started = time.monotonic()
        submitted = {kind: await users[kind].submit(spec) for kind, spec in specs().items()}
        last, latest = KINDS[-1], submitted[KINDS[-1]].id
        while (left_s := started + seconds - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, RESUBMIT_EVERY_S))
            await users[last].cancel(latest)
            latest = (await users[last].submit(specs()[last])).id
        lines = {line.subject: line for line in (await admin.history("user")).lines}
        accounts = {line.user: line.used_s for line in (await admin.shares()).users}
    used_s = {name: line.useful_cpu_s + line.wasted_cpu_s + line.lost_cpu_s for name, line in lines.items()}
    return [
        Row(policy, kind, lines[name].tasks, used_s[name] / sum(used_s.values()), accounts[name] / total(accounts))
        for name, kind in ((f"user{number}", kind) for number, kind in enumerate(KINDS, start=1))
    ]


def total(accounts: dict[str, float]) -> float:
    return sum(used_s for name, used_s in accounts.items() if name.startswith("user"))


async def user(one: Grid, admin: AsyncClient, name: str) -> AsyncClient:
    return AsyncClient(one.url, (await admin.create_token(name, "user")).secret)


def off(rows: Iterable[Row]) -> float:
    """Return the largest distance of a user's CPU time from the share, as a part of all CPU time."""
    return max(abs(row.cpu - 1 / len(KINDS)) for row in rows)


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--seconds", type=float, help="for each policy: 60; in the full form 300")
    asking.add_argument("--policy", nargs="+", default=["round-robin", "fair"])
    options = asking.parse_args()
    seconds = options.seconds or (300.0 if options.full else 60.0)
    found: list[Row] = []
    for policy in options.policy:
        progress(f"{policy}, {seconds:g} s ...")
        rows = asyncio.run(rows_of(policy, seconds))
        progress(f"{policy}: at most {off(rows):.1%} off")
        found += rows
    head = ["policy", "user", "tasks", "of the CPU time", "of the slot time", "due"]
    cells = [
        [row.policy, row.user, f"{row.tasks:,}", f"{row.cpu:.1%}", f"{row.slot_time:.1%}", f"{1 / len(KINDS):.0%}"]
        for row in found
    ]
    answer([asdict(row) for row in found], table(head, cells), options.json)


if __name__ == "__main__":
    main()
