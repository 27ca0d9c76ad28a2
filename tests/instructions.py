"""Number of Python instructions of a few fixed operations: unlike seconds, equal on every machine.

    python -m tests.instructions            current and recorded counts
    python -m tests.instructions --record   record the current counts

The count includes executed bytecodes (``f_trace_opcodes``) and calls of C functions. Work inside C functions, such as
parsing in pydantic's core, is not counted: this guards our own code. Each minor version of Python has different
bytecodes, and therefore its own record.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import FrameType
from typing import Any

from loopline_master.core.events import (
    JobSubmitted,
    LimitChanged,
    MasterStarted,
    SchedulerSettings,
    WorkerJoined,
    WorkerReported,
)
from loopline_master.core.scheduler import Scheduler
from loopline_shared.model import AttemptId, Facts, Held, Load, Outcome, Output, Resource, Result
from loopline_shared.protocol import link_session
from loopline_shared.protocol.attempt_ranges import ranges_of
from loopline_shared.protocol.gpus import GPU, Gpu
from loopline_shared.protocol.worker_link import Assign, Report, Run
from tests.scheduling.driver import facts, spec

RECORD = Path(__file__).with_name("instructions.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
WORKERS, TASKS, ROUNDS, BATCH = 20, 1_000, 10, 10
POLICIES = ("round-robin", "fair", "turnaround")


def counted(operation: Callable[[], object]) -> int:
    """Return the number of bytecodes and calls of C functions."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    gc.disable()  # or finalizers of objects of other tests may be counted
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        operation()
    finally:
        sys.setprofile(None)
        sys.settrace(None)
        gc.enable()
    return count


def a_report(policy: str) -> float:
    """Count the step of a Report with one result, whose slot gets a new task."""
    names = [f"w{n:02}" for n in range(WORKERS)]
    grid = _Reporting(SchedulerSettings(policy, prefetch_s=1.0, max_prefetch=4), dict.fromkeys(names, facts()))
    grid.step(JobSubmitted("user", spec(TASKS, TASKS * 0.5)))
    grid.join()
    return grid.count()


def a_report_of_many(policy: str, held: str) -> float:
    """Count the same in a step of its own, among jobs of 50 different requirements: of memory, and of units.

    ``held``: units of "limits", of 8 "resources", of "both" with several units of a resource, or one of 30 kinds of
    "gpus"; "": none.
    """
    workers = {f"w{number:02}": replace(facts(4), resources=_offered(held, number)) for number in range(WORKERS)}
    grid = _Reporting(SchedulerSettings(policy, prefetch_s=0.0, order="none"), workers)
    grid.step(*(LimitChanged(name, "", 200) for name in _LIMITS))
    for number in range(50):
        requires = {**_required(held, number), "memory_bytes": number}
        grid.step(JobSubmitted("user", spec(TASKS, TASKS * 0.5, requires=requires)))
    grid.join()
    return grid.count(batch=1)


_KINDS, _LIMITS = ([f"{letter}{number}" for number in range(8)] for letter in "rl")
_TOGETHER = [
    chosen for half in (_KINDS[::2], _KINDS[1::2]) for size in (1, 2, 3) for chosen in combinations(half, size)
]


def _offered(held: str, worker: int) -> tuple[Resource, ...]:
    """Return the resources that a worker offers."""
    if held == "gpus":
        gpus = [Gpu(f"{worker}-{slot}", f"MODEL{(3 * worker + slot) % 30}", index=slot) for slot in range(4)]
        return (Resource(GPU, 4, tuple(gpus)),)
    units = {"resources": 2, "both": 8}.get(held, 0)
    return tuple(Resource(name, units) for name in _KINDS[worker % 2 :: 2]) if units else ()


def _required(held: str, job: int) -> dict[str, Any]:
    """Return the units that a job's tasks hold."""
    resources, limits = _TOGETHER[job % len(_TOGETHER)], [_LIMITS[(job + place) % 8] for place in range(2)]
    if held == "gpus":
        return {"gpus": 1, "gpu_model": f"MODEL{job % 30}"}
    needs = dict.fromkeys(resources, 1) if held == "resources" else {}
    if held == "both":
        needs = {name: 1 + (job + place) % 3 for place, name in enumerate(resources)}
    return {"needs": needs | (dict.fromkeys(limits, 1) if held in ("limits", "both") else {})}


class _Reporting:
    """Workers that report the ends of their tasks."""

    def __init__(self, settings: SchedulerSettings, workers: dict[str, Facts]) -> None:
        self.scheduler, self.sent, self.workers = Scheduler(), 0, workers
        self.held = {name: deque[AttemptId]() for name in workers}
        self.step(MasterStarted(settings))

    def join(self) -> None:
        self.step(*(WorkerJoined(name, 1, "boot", known) for name, known in self.workers.items()))
        self.step(*(self.report(name, ends=False) for name in self.held))

    def count(self, batch: int = BATCH) -> float:
        names, total, rounds = deque(self.held), 0, ROUNDS * BATCH // batch
        for warm in range(2 * rounds):
            reports = [self.report(name, ends=True) for name in list(names)[:batch]]
            names.rotate(-batch)
            if warm < rounds:
                self.step(*reports)
            else:
                total += counted(lambda reports=reports: self.step(*reports))  # type: ignore[misc]
        return total / rounds / batch

    def step(self, *events: Any) -> None:
        for name, assign in self.scheduler.step(events, 1000.0 + self.sent).assigns.items():
            self.held[name] += [run.attempt for run in assign.run]

    def report(self, name: str, ends: bool) -> WorkerReported:
        self.sent += 1
        held, slots = self.held[name], self.workers[name].slots
        results = (Result(held.popleft(), Outcome.SUCCEEDED, 0, wall_s=0.5, cpu_s=0.5),) if ends else ()
        begun, waiting = [*held][:slots], [*held][slots:]
        said = Report(
            self.sent, self.sent, tuple(map(Held, begun)), results, Load(slots, 1.0), waiting=ranges_of(waiting)
        )
        return WorkerReported(name, 1, said)


def a_report_with_20_results() -> float:
    """Count the link's codec: encoded by the worker, decoded by the master."""
    output = Output(6, data=b"hello\n")
    results = [Result(AttemptId(1, n, 1), Outcome.SUCCEEDED, 0, "", 0.01, 0.01, 10**6, output) for n in range(20)]
    holding = tuple(Held(AttemptId(1, n, 1)) for n in (20, 21))
    report = Report(
        7, 6, holding, tuple(results), Load(2), waiting=ranges_of(AttemptId(1, n, 1) for n in range(22, 42))
    )
    link_session.decode_from_worker(link_session.encode(report))
    return counted(lambda: link_session.decode_from_worker(link_session.encode(report)))


def an_assign_with_20_runs() -> float:
    """Count the link's codec: encoded by the master, decoded by the worker."""
    runs = tuple(Run(AttemptId(1, n, 1), ("work", str(n)), {"i": n}, {"A": "B"}, job_name="sweep") for n in range(20))
    assign = Assign(7, 6, runs)
    link_session.decode_from_master(link_session.encode(assign))
    return counted(lambda: link_session.decode_from_master(link_session.encode(assign)))


def all_counts() -> dict[str, int]:
    counts = {f"a report, {policy}": a_report(policy) for policy in POLICIES}
    counts |= {
        operation.__name__.replace("_", " "): operation()
        for operation in (a_report_with_20_results, an_assign_with_20_runs)
    }
    return {name: round(count) for name, count in counts.items()}


def counts_apart() -> dict[str, int]:
    """Count in a separate process with the hash seed of the record."""
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.instructions", "--json"]
    folder = Path(__file__).parents[1]
    done = subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True, timeout=120)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def recorded() -> dict[str, int] | None:
    """Return the recorded counts; None if there are none for this version of Python."""
    record: dict[str, dict[str, int]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return record.get(VERSION)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--json", action="store_true", help="what they take in this process, and nothing else")
    chosen = parser.parse_args()
    if chosen.json:
        print(json.dumps(all_counts()))
        return
    counts, known = counts_apart(), recorded() or {}
    for name, count in counts.items():
        print(f"{name:30s}{count:10,d}" + (f"{known[name]:10,d} recorded" if name in known else ""))
    if chosen.record:
        record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        RECORD.write_text(json.dumps(record | {VERSION: counts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
