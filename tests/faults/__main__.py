"""Run fault campaigns of many seeds, some at the same time, and add up their faults.

    python -m tests.faults --seeds 1-20                   each feature with each seed, 100 faults each
    python -m tests.faults --seeds 7 --features tls peers

A campaign that is in the file given by --keep is not run again with the same commit, unless it found an error. Exits
with 1 if any campaign found one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from tests.faults.driver import Campaign
from tests.faults.features import FEATURES, drawn_together
from tests.faults.plain import PLAIN

TOGETHER = "together"
"""Stands for two or three features, drawn by the seed."""
NAMES = [*FEATURES, TOGETHER]


@dataclass
class Ran:
    """A campaign that has ended."""

    commit: str
    feature: str
    seed: int
    wanted: int  # faults
    faults: int = 0
    tasks: int = 0
    seconds: int = 0
    findings: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = "; ".join(self.findings) or "sound"
        return f"{self.feature} {self.seed}: {self.faults} faults, {self.tasks} tasks, {self.seconds} s: {said}"

    @property
    def key(self) -> tuple[object, ...]:
        return self.commit, self.feature, self.seed, self.wanted


def main() -> int:
    """Run the command and return its exit code."""
    given = _parser().parse_args()
    if given.one:
        one = Ran(given.commit, given.features[0], given.seeds[0], given.faults)
        print(json.dumps(asdict(asyncio.run(_run(one)))))
        return 0
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    wanted = [Ran(commit.stdout.strip(), name, seed, given.faults) for seed in given.seeds for name in given.features]
    given.keep.parent.mkdir(parents=True, exist_ok=True)
    kept = [Ran(**json.loads(line)) for line in given.keep.read_text().splitlines()] if given.keep.exists() else []
    known = {one.key: one for one in kept if not one.findings}
    ran = [known[one.key] for one in wanted if one.key in known]
    with ThreadPoolExecutor(given.at_once) as pool:
        for done in as_completed([pool.submit(_run_apart, one) for one in wanted if one.key not in known]):
            ran.append(one := done.result())
            with given.keep.open("a") as file:
                file.write(json.dumps(asdict(one)) + "\n")
            print(one, flush=True)
    faults, tasks = sum(one.faults for one in ran), sum(one.tasks for one in ran)
    bad = sum(bool(one.findings) for one in ran)
    print(f"{len(ran)} campaigns, {faults:,} faults, {tasks:,} tasks; {bad} campaigns found an error")
    return 1 if bad else 0


def _run_apart(wanted: Ran) -> Ran:
    """Run a campaign in a process of its own."""
    what = ["--features", wanted.feature, "--seeds", str(wanted.seed), "--faults", str(wanted.wanted)]
    run = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--one", "--commit", wanted.commit, *what],
        env=os.environ | {"LOOPLINE_SANDBOX": "off"},  # as in the suite; the feature "sandbox" requests one
        capture_output=True,
        text=True,
        check=False,
    )
    lines = run.stdout.splitlines()
    if run.returncode or not lines:
        return replace(wanted, findings=(f"it ended with exit code {run.returncode}: {run.stderr[-2000:]}",))
    return Ran(**json.loads(lines[-1]))


async def _run(wanted: Ran) -> Ran:
    if wanted.feature == TOGETHER:
        features = drawn_together(Random(f"{wanted.seed} together"))
    else:
        features = [PLAIN] if wanted.feature == PLAIN.name else [PLAIN, FEATURES[wanted.feature]]
    since = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="loopline-faults-") as folder:
        report = await Campaign(Path(folder), features, wanted.seed, faults=wanted.wanted).run()
    return replace(
        wanted,
        faults=report.faults.total(),
        tasks=report.tasks,
        seconds=round(time.monotonic() - since),
        findings=tuple(report.findings),
    )


def _numbers(text: str) -> list[int]:
    parts = [part.partition("-") for part in text.split(",")]
    return [number for first, _, last in parts for number in range(int(first), int(last or first) + 1)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--seeds", type=_numbers, default=[1], help="such as 1-20 or 3,7 (1)")
    add("--features", nargs="+", choices=NAMES, default=NAMES, metavar="FEATURE", help=", ".join(NAMES))
    add("--faults", type=int, default=100, help="of each campaign (100)")
    add("--at-once", type=int, default=2, help="campaigns that run at the same time (2)")
    add("--keep", type=Path, default=Path(".bench/faults.jsonl"), help="file of what has run (%(default)s)")
    add("--one", action="store_true", help=argparse.SUPPRESS)
    add("--commit", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
