"""Run fault campaigns of many seeds, some at the same time, and add up their faults.

    python -m tests.faults --seeds 1-20                   each feature with each seed, 100 faults each
    python -m tests.faults --seeds 7 --features tls peers

A campaign that is in the file given by --keep is not run again. Exits with 1 if any campaign found an error.
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
from dataclasses import asdict, dataclass
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

    feature: str
    seed: int
    faults: int = 0
    tasks: int = 0
    seconds: int = 0
    findings: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = "; ".join(self.findings) or "sound"
        return f"{self.feature} {self.seed}: {self.faults} faults, {self.tasks} tasks, {self.seconds} s: {said}"


def main() -> int:
    """Run the command and return its exit code."""
    given = _parser().parse_args()
    if given.one:
        print(json.dumps(asdict(asyncio.run(_run(given.features[0], given.seeds[0], given.faults)))))
        return 0
    given.keep.parent.mkdir(parents=True, exist_ok=True)
    ran = [Ran(**json.loads(line)) for line in given.keep.read_text().splitlines()] if given.keep.exists() else []
    known = {(one.feature, one.seed) for one in ran}
    wanted = [(name, seed) for seed in given.seeds for name in given.features if (name, seed) not in known]
    with ThreadPoolExecutor(given.at_once) as pool:
        for done in as_completed([pool.submit(_run_apart, name, seed, given.faults) for name, seed in wanted]):
            ran.append(one := done.result())
            with given.keep.open("a") as kept:
                kept.write(json.dumps(asdict(one)) + "\n")
            print(one, flush=True)
    faults, tasks, bad = sum(one.faults for one in ran), sum(one.tasks for one in ran), sum(map(_is_bad, ran))
    print(f"{len(ran)} campaigns, {faults:,} faults, {tasks:,} tasks; {bad} campaigns found an error")
    return 1 if bad else 0


def _is_bad(one: Ran) -> bool:
    return bool(one.findings)


def _run_apart(name: str, seed: int, faults: int) -> Ran:
    """Run a campaign in a process of its own."""
    command = [sys.executable, "-m", "tests.faults", "--one", "--features", name, "--seeds", str(seed)]
    run = subprocess.run(
        [*command, "--faults", str(faults)],
        env=os.environ | {"LOOPLINE_SANDBOX": "off"},  # as in the suite; the feature "sandbox" requests one
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return Ran(name, seed, findings=(f"the campaign ended with {run.returncode}: {run.stderr[-2000:]}",))
    return Ran(**json.loads(run.stdout.splitlines()[-1]))


async def _run(name: str, seed: int, faults: int) -> Ran:
    if name == TOGETHER:
        features = drawn_together(Random(f"{seed} together"))
    else:
        features = [PLAIN] if name == PLAIN.name else [PLAIN, FEATURES[name]]
    since = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="loopline-faults-") as folder:
        report = await Campaign(Path(folder), features, seed, faults=faults).run()
    took_s = round(time.monotonic() - since)
    return Ran(name, seed, report.faults.total(), report.tasks, took_s, tuple(report.findings))


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
    return parser


if __name__ == "__main__":
    sys.exit(main())
