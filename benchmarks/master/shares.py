"""Fairness between users: does a user with sixty jobs get more of a live grid than one with a single job?

Ann submits sixty jobs of short tasks, Bob one job of many. Their shares are equal, then 1 to 3. The measure is the
slot time of their tasks, as reported by the workers (`GET /history`), not the scheduler's own accounts.

    python benchmarks/master/shares.py [--full] [--seconds N] [--json]
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.grid import Grid, grid
from benchmarks.harness.tables import answer, parser, progress, table
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec
from loopline_simulator.streams import stream

ANNS_JOBS, ANNS_TASKS, BOBS_TASKS = 60, 100, 20_000
BOBS_NAP_S = 0.4
SLOTS = 4


@dataclass(frozen=True, slots=True)
class Row:
    """What each has had."""

    order: str
    shares: str
    anns_due: float
    anns_part: float
    passings: int

    @property
    def off(self) -> float:
        return abs(self.anns_part / self.anns_due - 1.0)


async def row_of(order: str, bobs_share: float, seconds: float) -> Row:
    flags = ["--order", "hold", "--order-within", order]
    async with grid(SLOTS, *flags) as one, one.client() as admin:
        await admin.set_share("bob", bobs_share)
        async with await _user(one, admin, "ann") as ann, await _user(one, admin, "bob") as bob:
            await _submit(ann, bob)
            await asyncio.sleep(seconds)
            had = {line.subject: line.wall_s for line in (await admin.history("user")).lines}
            passings = (await admin.passing()).passings
    return Row(order, f"1 : {bobs_share:g}", 1.0 / (1.0 + bobs_share), had["ann"] / sum(had.values()), passings)


async def _user(one: Grid, admin: AsyncClient, name: str) -> AsyncClient:
    return AsyncClient(one.url, (await admin.create_token(name, "user")).secret)


async def _submit(ann: AsyncClient, bob: AsyncClient) -> None:
    draw = stream(1, "shares")
    await bob.submit(_naps(BOBS_TASKS, BOBS_NAP_S))
    for _ in range(ANNS_JOBS):
        await ann.submit(_naps(ANNS_TASKS, float(draw.uniform(0.2, 1.0))))


def _naps(tasks: int, seconds: float) -> JobSpec:
    command = ["sleep", f"{seconds:.2f}"]
    return JobSpec(command=command, parameters={"i": Range(range=[1, tasks])}, size=tasks * seconds)


def main() -> None:
    asking = parser(__doc__)
    asking.add_argument("--seconds", type=float, help="for each line: 20; in the full form 120")
    options = asking.parse_args()
    seconds = options.seconds or (120.0 if options.full else 20.0)
    found = []
    for order, share in (("grid", 1.0), ("user", 1.0), ("user", 3.0)):
        progress(f"order within {order}, shares 1 : {share:g} ...")
        found.append(asyncio.run(row_of(order, share, seconds)))
    head = ["order within", "ann : bob", "due to ann", "had", "off", "passings"]
    cells = [
        [row.order, row.shares, f"{row.anns_due:.1%}", f"{row.anns_part:.1%}", f"{row.off:.1%}", row.passings]
        for row in found
    ]
    answer([asdict(row) for row in found], table(head, cells), options.json)


if __name__ == "__main__":
    main()
