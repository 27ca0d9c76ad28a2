"""Answers of the master as people see them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopline.cli import human, knowledge
from shared.api import (
    Explanation,
    JobDetail,
    JobView,
    JoinTokenView,
    PassingReport,
    TaskView,
    TokenView,
    WorkerView,
)
from shared.model import Load, SizeSource, Yielded

_STYLES = {
    "queued": "yellow",
    "running": "cyan",
    "dispatched": "cyan",
    "succeeded": "green",
    "failed": "bold red",
    "lost": "red",
    "cancelled": "dim",
    "cancelling": "dim",
}


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


def cut(shown: RenderableType, count: int, limit: int) -> RenderableType:
    """With a remark where the limit may have left some out."""
    if count != limit:
        return shown
    return Group(shown, Text(f"no more than {limit:,} are shown; --limit 0 shows all", "dim"))


def state(name: str, *remarks: str) -> Text:
    return Text.assemble((name, _STYLES.get(name, "")), *(f", {remark}" for remark in remarks if remark))


def jobs(items: Sequence[JobView]) -> RenderableType:
    if not items:
        return Text("no jobs; submit one: loopline submit -- hostname")
    now = time.time()
    made = table("job", "name", "state", "tasks", "size", "submitted", "took", right=("job", "size"))
    for job in items:
        made.add_row(
            str(job.id), Text(job.name), job_state(job), counts(job), size(job),
            human.ago(job.submitted_at, now), human.between(job.started_at, job.finished_at, now),
        )  # fmt: skip
    return made


def job_state(job: JobView) -> Text:
    remarks = ("paused" if job.paused else "", "held" if job.held else "", "stalled" if job.stalled else "")
    return state(job.state, *remarks)


def size(job: JobView) -> str:
    """As given, or ``~`` as predicted."""
    return ("~" if job.size_source is SizeSource.PREDICTED else "") + human.size(job.size)


def counts(job: JobView) -> str:
    """``40 of 100``, and what else is worth knowing."""
    others = {"running": job.tasks.running, "failed": job.tasks.failed, "cancelled": job.tasks.cancelled}
    remarks = (f", {count:,} {what}" for what, count in others.items() if count)
    return f"{job.tasks.succeeded:,} of {job.task_count:,}" + "".join(remarks)


def job(detail: JobDetail) -> RenderableType:
    now = time.time()
    facts = table("", "")
    facts.show_header, facts.box = False, None
    for name, value in _facts(detail, now):
        facts.add_row(Text(name, "bold"), value)
    return facts


def _facts(job: JobDetail, now: float) -> Iterable[tuple[str, RenderableType]]:
    yield "job", Text.assemble((str(job.id), "bold"), "  ", job.name)
    yield "state", job_state(job)
    yield "tasks", counts(job)
    yield "size", size(job) + knowledge.expected(job.predicted)
    yield "owner", job.owner
    if job.spec.command:
        yield "command", Text(" ".join(job.spec.command))
    yield "submitted", f"{human.moment(job.submitted_at)}  ({human.ago(job.submitted_at, now)})"
    yield "started", human.moment(job.started_at)
    if job.held_at is not None:
        yield "held", f"{human.moment(job.held_at)}  for {human.between(job.held_at, job.released_at, now)}"
    yield "finished", human.moment(job.finished_at)
    yield "took", human.between(job.started_at, job.finished_at, now)
    yield "a task", f"at most {human.plural(job.max_attempts, 'attempt')}, {job.max_replicas or 'any number'} at once"


def tasks(items: Sequence[TaskView]) -> RenderableType:
    now = time.time()
    made = table("task", "state", "worker", "took", "exit", "failures", "why", right=("exit", "failures"))
    for task in items:
        made.add_row(
            str(task.id), state(task.state), task.worker or "-",
            human.between(task.started_at, task.finished_at, now),
            "-" if task.exit_code is None else str(task.exit_code), str(task.failures), Text(task.reason),
        )  # fmt: skip
    return made


def explanation(item: Explanation) -> RenderableType:
    reasons = (Text(f"  {reason.count:>6,}  {reason.detail}") for reason in item.reasons)
    return Group(Text.assemble((item.subject, "bold"), f": {item.sentence}"), *reasons)


def workers(items: Sequence[WorkerView]) -> RenderableType:
    if not items:
        return Text("no workers; start one: loopline worker")
    now = time.time()
    made = table(
        "worker",
        "state",
        "slots",
        "spare CPU",
        "memory free",
        "owner",
        "input to frozen",
        "system",
        "heard",
        "labels",
        right=("slots",),
    )
    for worker in items:
        load, facts = worker.load, worker.facts
        made.add_row(
            worker.name, _worker_state(worker), f"{worker.slots_used}/{worker.slots}",
            f"{load.spare_cpu:.1f} of {facts.cpus}" if load else "-",
            human.amount(load.memory_available_bytes) if load else "-",
            _owner(load) if load else "-", _yielded(load.yielded) if load else "-",
            f"{facts.os} {facts.arch}", human.ago(worker.reported_at, now), " ".join(facts.labels),
        )  # fmt: skip
    return made


def _owner(load: Load) -> str:
    """Whether somebody is there, and why fewer slots are lent than there are."""
    there = "in use" if load.in_use else "-" if load.idle_s is None else f"away {human.duration(load.idle_s)}"
    return there if load.in_use or not load.withheld else f"{there}, {load.withheld}".removeprefix("-, ")


def _yielded(figures: Yielded) -> str:
    """Half of the times within, 99 of 100 within; of how many."""
    if not figures.count:
        return "-"
    return f"p50 {figures.p50_s:.3f}s p99 {figures.p99_s:.3f}s of {figures.count:,}"


def _worker_state(worker: WorkerView) -> Text:
    if not worker.connected:
        return Text("away", "red")
    if worker.probation is not None:
        return Text("probation", "bold red")
    if worker.draining:
        return Text("draining", "yellow")
    return Text("on trial", "yellow") if worker.on_trial else Text("connected", "green")


def tokens(items: Sequence[TokenView]) -> RenderableType:
    made = table("token", "name", "role", "created", "revoked")
    for token in items:
        made.add_row(token.id, token.name, token.role, human.moment(token.created_at), human.moment(token.revoked_at))
    return made


def passing(report: PassingReport) -> RenderableType:
    """``3 completions checked, 0 passings``, and the latest of whatever there was."""
    line = Text.assemble(
        f"{human.plural(report.completions, 'completion')} checked, ",
        (human.plural(report.passings, "passing"), "bold red" if report.passings else "green"),
        *(f", {count:,} allowed ({reason})" for reason, count in report.excused.items()),
    )
    pairs = (
        Text(f"  job {pair.job} completed before job {pair.passed}: {pair.reason or 'not allowed'}")
        for pair in report.latest
    )
    return Group(line, *pairs)


def join_tokens(items: Sequence[JoinTokenView]) -> RenderableType:
    made = table("join token", "used", "created", "expires", "revoked")
    for token in items:
        made.add_row(
            token.id, f"{token.used}/{token.uses}", human.moment(token.created_at), human.moment(token.expires_at),
            human.moment(token.revoked_at),
        )  # fmt: skip
    return made
