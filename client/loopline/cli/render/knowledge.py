"""Tables of speed and health of workers, of programs and their runs, and of failures."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from loopline.cli.render import human, tables
from loopline_shared.model import Facts, SpeedSource
from loopline_shared.rest.bodies import FailureReport, LastHour, ProgramView, WorkerView

_PLACES, _MOST_JOBS = 3, 10


def workers(items: Sequence[WorkerView]) -> RenderableType:
    """Return a table of speed, queue, network, last hour and health of workers."""
    if not items:
        return Text("no workers; start one: loopline worker")
    now = time.time()
    made = tables.table(
        "worker", "speed", "as measured", "spare CPU", "queue", "delay", "throughput", "reported", "last hour",
        "health", right=("speed", "queue", "delay", "throughput", "health"),
        drop=("as measured", "delay", "throughput", "reported", "spare CPU", "last hour"),
        fold={"worker": 20, "as measured": 16, "last hour": 16, "health": 12},
    )  # fmt: skip
    for worker in items:
        load = worker.load
        made.add_row(
            worker.name, f"{worker.speed:.2f}", _measured(worker.facts, now),
            f"{load.spare_cpu:.1f} of {worker.facts.cpus}" if load else "-",
            human.duration(worker.queue_s), _delay(load.delay_s if load else None),
            _throughput(load.throughput_bytes_s if load else None), human.ago(worker.reported_at, now),
            _last_hour(worker.last_hour), _health(worker, now),
        )  # fmt: skip
    return made


def programs(items: Sequence[ProgramView]) -> RenderableType:
    """Return a table of what past runs tell of programs."""
    if not items:
        return Text("no program is known yet: programs are learnt from tasks that succeed")
    now = time.time()
    made = tables.table(
        "user", "program", "folder", "runs", "a task", "p10 to p90", "CPU", "memory", "workers", "last used",
        right=("runs", "a task", "CPU", "memory"),
        drop=("folder", "memory", "workers", "CPU", "last used", "p10 to p90"), fold={"program": 20, "folder": 20},
    )  # fmt: skip
    for program in items:
        known = program.predicted
        made.add_row(
            program.user, Text(program.name), Text(program.folder), f"{program.runs:,}",
            human.duration(known.work) if known else "-",
            f"{human.duration(known.p10)} to {human.duration(known.p90)}" if known else "-",
            human.duration(program.cpu_s), human.amount(program.peak_memory_bytes), _places(program.workers),
            human.ago(program.used_at, now),
        )  # fmt: skip
    return made


def failures(report: FailureReport) -> RenderableType:
    """Return a table of the kinds of failures."""
    if not report.kinds:
        return Text("no task has failed")
    made = tables.table(
        "failed tasks", "exit", "jobs", "example", "why", right=("failed tasks", "exit"), drop=("exit",),
        fold={"jobs": 16, "why": 30},
    )  # fmt: skip
    for kind in report.kinds:
        shown = ", ".join(map(str, kind.jobs[:_MOST_JOBS])) + (", ..." if len(kind.jobs) > _MOST_JOBS else "")
        code = "-" if kind.exit_code is None else str(kind.exit_code)
        made.add_row(f"{kind.tasks:,}", code, shown, str(kind.example), Text(kind.reason))
    jobs = human.plural(report.job_count, "job")
    more = f"of the latest {jobs} with failed tasks" if report.truncated else f"of {jobs}"
    return Group(made, Text(more, "dim"))


def _measured(facts: Facts, now: float) -> str:
    if facts.speed_source is SpeedSource.ASSUMED:
        return f"{facts.speed:.2f}, assumed"
    return f"{facts.speed:.2f}, {facts.speed_source}, {human.ago(facts.speed_measured_at, now)}"


def _delay(delay_s: float | None) -> str:
    return "-" if delay_s is None else f"{1000 * delay_s:.1f} ms"


def _throughput(bytes_s: float | None) -> str:
    return "-" if bytes_s is None else f"{human.amount(bytes_s)}/s"


def _last_hour(did: LastHour | None) -> str:
    """Return what tasks used of speed times slots: ``40 % of 2h used, 12 tasks``."""
    if did is None or did.share is None:
        return "-"
    used = f"{100 * did.share:.0f} % of {human.duration(did.offered)} used"
    return f"{used}, {human.plural(did.tasks, 'task')}"


def _health(worker: WorkerView, now: float) -> str:
    if worker.quarantine is not None:
        return f"quarantined for {human.duration(worker.quarantine.until - now)}: {worker.quarantine.reason}"
    overstated = f", {human.plural(worker.overstated, 'report')} of impossible figures" if worker.overstated else ""
    return f"{worker.health:+.1f}" + (", half-open" if worker.half_open else "") + overstated


def _places(workers: dict[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in list(workers.items())[:_PLACES]]
    more = len(workers) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more > 0 else "")
