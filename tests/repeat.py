"""Run the suite many times, and print the failed tests with their number of failed runs.

    make test-repeat N=20                  quiet, with as many processes as `make test` has
    make test-repeat N=10 BUSY=2           with two more processes that keep a core busy each
    make test-repeat N=5 PROCESSES=1       in one process
    make test-repeat N=3 TESTS=tests/live  a part of the suite

Each run has another order of tests and another seed of hypothesis, which is printed; `--seed` repeats one. The first
traceback of each failing test is kept in .bench/repeat. Exits with 1 if any run failed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(".bench/repeat")


@dataclass
class Run:
    """``exit_code``: pytest's; ``failures``: traceback of each test that failed."""

    exit_code: int
    passed: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def main() -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    failed, red = Counter[str](), 0
    for number in range(1, options.times + 1):
        seed = options.seed if options.seed is not None else random.randrange(2**32)
        began = time.monotonic()
        with busy_cores(options.busy):
            run = run_suite(seed, options.processes, options.arguments)
        red += run.exit_code != 0
        for test, traceback in run.failures.items():
            if test not in failed:
                _file_for(test).write_text(f"run {number}, seed {seed}\n\n{traceback}")
            failed[test] += 1
        print(_line(number, options.times, run, time.monotonic() - began, seed), flush=True)
    print(f"\n{options.times - red} of {options.times} runs passed" + ("" if red else ", no test failed"))
    for test, count in failed.most_common():
        print(f"  failed in {count}: {test}  ({_file_for(test)})")
    return 1 if red else 0


def run_suite(seed: int, processes: int, arguments: list[str]) -> Run:
    """Run the suite once; in ``processes`` processes, 1 meaning without pytest-xdist."""
    report = FOLDER / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "randomly", f"--randomly-seed={seed}"]
    command += [f"--hypothesis-seed={seed}", f"--junitxml={report}", *arguments]
    if processes > 1:
        command += ["-n", str(processes), "--dist", "worksteal"]
    with (FOLDER / "latest.log").open("wb") as log:
        environment = os.environ | {"LOOPLINE_RANDOM_EXAMPLES": "1"}
        code = subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    run = Run(code)
    if not report.exists():
        run.failures["(the run itself)"] = (FOLDER / "latest.log").read_text(errors="replace")[-20_000:]
        return run
    for case in ET.parse(report).iter("testcase"):
        trouble = case.find("failure") if case.find("failure") is not None else case.find("error")
        if trouble is not None:
            name = f"{case.get('classname')}::{case.get('name')}"  # there may be two: of the test, and of its end
            run.failures[name] = "\n\n".join(filter(None, [run.failures.get(name), trouble.text]))
        elif case.find("skipped") is None:
            run.passed += 1
    return run


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep ``count`` processes computing while the context lasts."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _line(number: int, times: int, run: Run, seconds: float, seed: int) -> str:
    verdict = f"{run.passed:,} passed" + (f", {len(run.failures)} FAILED" if run.failures else "")
    if run.exit_code and not run.failures:
        verdict += f", pytest exited with {run.exit_code}: see {FOLDER / 'latest.log'}"
    return f"run {number} of {times}: {verdict} in {seconds:.0f} s (seed {seed})"


def _file_for(test: str) -> Path:
    return FOLDER / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', test)[:150]}.txt"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.repeat", description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--times", type=int, default=20, help="runs (default 20)")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside the suite (default 0)")
    parser.add_argument(
        "--processes", type=int, default=2 * (os.cpu_count() or 1), help="of pytest-xdist (default: two a core)"
    )
    parser.add_argument("--seed", type=int, help="the seed of every run, to repeat one (default: random)")
    parser.add_argument("arguments", nargs="*", help="for pytest: files, or options after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
