"""Run the short form of every benchmark and write the output to `benchmarks/results.md`.

It comes with the machine, the versions, the date and the command of each.

A benchmark that fails or takes far too long is reported; the others go on, and the exit code is 1. Figures are
meaningful only on an otherwise idle computer.

    python benchmarks/run_all.py [NAME ...] [--output benchmarks/results.md]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.harness import peers
from benchmarks.harness.tables import machine

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"
RESULTS = FOLDER / "results.md"
LIMIT_S = 180.0
SUBJECTS = ("rates", "master", "worker", "estimates")
"""Folders of benchmarks; the others hold what benchmarks share."""
FIRST = (
    "processes", "functions", "latency", "lone_task", "start", "idle_agent", "swarm", "million_tasks",
    "scheduler_step",
)  # fmt: skip
SHORT = {
    "a_year": ["--days", "60"],
    "agent_cpu": ["--tasks", "3000"],
    "hostile": ["--seconds", "20"],
    "idle_agent": ["--seconds", "15"],
    "owner_share": ["--seconds", "2"],
    "page": ["--bars", "10000"],
    "prediction": ["--seeds", "50"],
    "scheduler_step": ["--reports", "1000"],
    "spawn": ["--tasks", "500", "--rounds", "2"],
    "swarm": ["--short"],
}
"""Arguments of benchmarks whose short form differs from their default."""
NEEDS = {"gpus": ["nvidia-smi"], "owner_return": ["Xvfb", "xdotool"], "page": ["chromium"]}
"""Programs that a benchmark requires."""
MODULES = {
    file.stem: f"benchmarks.{subject}.{file.stem}" for subject in SUBJECTS for file in FOLDER.glob(f"{subject}/*.py")
}


@dataclass(frozen=True)
class Answer:
    name: str
    command: str
    text: str
    took_s: float
    error: str = ""

    @property
    def told(self) -> str:
        return self.error or f"{self.took_s:.0f} s"


def names() -> list[str]:
    """The weightiest first."""
    found = sorted(MODULES)
    return [*(name for name in FIRST if name in found), *(name for name in found if name not in FIRST)]


def run(name: str) -> Answer:
    command = ["-m", MODULES[name], *SHORT.get(name, [])]
    shown = f"python {' '.join(command)}"
    if missing := [program for program in NEEDS.get(name, []) if not shutil.which(program)]:
        return Answer(name, shown, f"Not run: {' and '.join(missing)} is missing here.", 0.0)
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        said, progress = process.communicate(timeout=LIMIT_S)
        error = f"failed: {_last(progress)}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # so that it ends what it has started
        said, _ = process.communicate()
        error = f"stopped after {LIMIT_S:.0f} s"
    return Answer(name, shown, said.strip(), time.monotonic() - begin, error)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "without a word"


def report(answers: list[Answer], load: float) -> str:
    about = {**machine(), "peers": ", ".join(f"{name} {version}" for name, version in peers.versions().items())}
    head = [
        "# Results",
        "",
        f"Written by `make bench` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC (commit {_commit()}). What each asks is",
        "in [README.md](README.md), how to read the figures in [docs/performance.md](../docs/performance.md).",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value or 'not installed'} |" for name, value in about.items()),
        f"| load average before | {load:.2f} |",
        f"| took | {sum(one.took_s for one in answers):.0f} s |",
    ]
    return "\n".join([*head, *(line for one in answers for line in _section(one))]) + "\n"


def _section(one: Answer) -> list[str]:
    failed = [f"**{one.error}**", ""] if one.error else []
    text = ["```", one.text, "```"] if one.text else []
    return ["", f"## {one.name}", "", f"`{one.command}` ({one.took_s:.0f} s)", "", *failed, *text]


def _commit() -> str:
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def main() -> int:
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("names", nargs="*", choices=[*names(), []], help="all of them, if none is named")
    asking.add_argument("--output", type=Path, default=RESULTS)
    options = asking.parse_args()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"This computer is busy (load {load:.1f}): figures will be worse than they could be.", flush=True)
    answers = []
    for name in options.names or names():
        print(f"{name:22}", end="", flush=True)
        answers.append(run(name))
        print(answers[-1].told, flush=True)
        options.output.write_text(report(answers, load), "utf-8")
    print(f"written to {options.output}")
    return int(any(one.error for one in answers))


if __name__ == "__main__":
    sys.exit(main())
