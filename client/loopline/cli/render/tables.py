"""Tables and lines of the master's answers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from rich.console import Group, RenderableType
from rich.text import Text

from loopline.cli.render import human
from loopline.cli.render.fitted import FittedTable
from loopline.cli.render.network_tree import flow_lines
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import Facts, Load, OrderWithin, Prediction, SizeSource, Yielded
from loopline_shared.rest.access import AuditEntry, JoinTokenView, TokenView
from loopline_shared.rest.bodies import (
    EnergyUse,
    Eta,
    Explanation,
    JobAccounting,
    JobDetail,
    JobView,
    PassingReport,
    PlanView,
    ResumedView,
    TaskView,
    WorkerView,
)

_MOST_FLOWS = 20
_STYLES = {
    "waiting": "dim yellow",
    "held": "dim yellow",
    "paused": "yellow",
    "stalled": "red",
    "overdrawn": "red",
    "queued": "yellow",
    "running": "cyan",
    "prefetched": "dim cyan",
    "dispatched": "cyan",
    "succeeded": "green",
    "failed": "bold red",
    "lost": "red",
    "cancelled": "dim",
    "cancelling": "dim",
}

_IMPLAUSIBLE = 3.0
"""A size is questioned if so many times as much processor time was used: cores differ in speed."""


def table(
    *columns: str,
    right: Iterable[str] = (),
    drop: Sequence[str] = (),
    fold: Mapping[str, int] = MappingProxyType({}),
) -> FittedTable:
    """Return an empty table. What goes where it is too wide: see FittedTable."""
    return FittedTable(columns, right=right, drop=drop, fold=fold)


def cut(shown: RenderableType, count: int, limit: int) -> RenderableType:
    """Return the table, with a remark if the limit may have cut it."""
    if count != limit:
        return shown
    return Group(shown, Text(f"showing the first {limit:,}; use --limit 0 for all", "dim"))


def state(name: str) -> Text:
    """Return the name of a state in its colour."""
    return Text(name, _STYLES.get(name, ""))


def jobs(items: Sequence[JobView]) -> RenderableType:
    """Return a table of jobs."""
    if not items:
        return Text("no jobs; submit one: loopline submit -- hostname")
    now = time.time()
    made = table(
        "job", "name", "state", "tasks", "size", "submitted", "took", "ETA", right=("job", "size"),
        drop=("submitted", "size", "took", "ETA"), fold={"name": 16, "tasks": 24},
    )  # fmt: skip
    for job in items:
        made.add_row(
            str(job.id), Text(job.name), job_state(job), counts(job), size(job),
            human.ago(job.submitted_at, now), human.period(job.took, now), eta(job, now),
        )  # fmt: skip
    return made


def eta(job: JobView, now: float) -> str:
    """Return the time until a job is over: 50 % and 90 % likely."""
    if job.eta is None:
        return "-"
    return f"{human.duration(job.eta.p50_at - now)} to {human.duration(job.eta.p90_at - now)}"


def job_state(job: JobView) -> Text:
    """Return the condition of a job in its colour."""
    return state(job.condition)


def size(job: JobView) -> str:
    """Return the size of a job, after ``~`` if it is predicted."""
    mark = " (cannot be true)" if _is_implausible(job) else ""
    return ("~" if job.size_source is SizeSource.PREDICTED else "") + human.size(job.size) + mark


def _is_implausible(job: JobView) -> bool:
    """True if the job has taken far more processor time than the size that its user gave."""
    is_given = job.size is not None and job.size_source is SizeSource.GIVEN
    return is_given and job.ledger.useful_cpu_s > _IMPLAUSIBLE * (job.size or 0.0)


def counts(job: JobView) -> str:
    """Return the progress of a job: ``40 of 100``, and other counts that are not 0.

    If running tasks tell their progress: ``40 of 100 (42%)``.
    """
    others = {
        "running": job.tasks.running - job.tasks.prefetched,
        "prefetched": job.tasks.prefetched,
        "failed": job.tasks.failed,
        "cancelled": job.tasks.cancelled,
    }
    remarks = (f", {count:,} {what}" for what, count in others.items() if count)
    share = "" if job.progress is None else f" ({job.progress:.0%})"
    return f"{job.tasks.succeeded:,} of {job.task_count:,}{share}" + "".join(remarks)


def job(detail: JobDetail) -> RenderableType:
    """Return the facts of one job."""
    now = time.time()
    facts = table("fact", "value")
    facts.has_header = False
    for name, value in _facts(detail, now):
        facts.add_row(Text(name, "bold"), value)
    return facts


def _facts(job: JobDetail, now: float) -> Iterable[tuple[str, RenderableType]]:
    yield "job", Text.assemble((str(job.id), "bold"), "  ", job.name)
    yield "state", job_state(job)
    yield "tasks", counts(job)
    yield "size", size(job) + _expected(job.predicted)
    yield "user", job.user
    if job.spec.command:
        yield "command", Text(" ".join(job.spec.command))
    yield "submitted", f"{human.moment(job.submitted_at)}  ({human.ago(job.submitted_at, now)})"
    yield "waited", human.period(job.waited, now)
    yield "started", human.moment(job.started_at)
    if job.was_held is not None:
        yield "held", f"{human.moment(job.was_held.since)}  for {human.period(job.was_held, now)}"
    yield "finished", human.moment(job.finished_at)
    if job.eta is not None:
        yield "ETA", f"in {eta(job, now)}, from {job.eta.based_on}{_held_so_far(job.eta)}"
    elif job.eta_note:
        yield "ETA", f"none: {job.eta_note}"
    if job.plan is not None:
        yield from planned(job.plan, job.spec.nodes)
    if job.waiting_for:
        yield "waits for", ", ".join(f"job {one}" for one in job.waiting_for)
    if job.files_coming:
        yield "files coming", Group(*flow_lines(job.files_coming, _MOST_FLOWS))
    yield "took", human.period(job.took, now)
    yield "CPU time", _accounting(job.ledger)
    yield from _energy(job.energy)
    if job.ledger.checkpoints:
        yield "checkpoints", _checkpoints(job.ledger)
    if job.mismatches:
        yield (
            "mismatches",
            Text(f"results of {human.plural(job.mismatches, 'task')} differ between workers", "bold red"),
        )
    yield "a task", f"at most {human.plural(job.max_attempts, 'attempt')}, {job.max_replicas or 'any number'} at once"
    yield from _units(job)


def _energy(use: EnergyUse | None) -> Iterable[tuple[str, RenderableType]]:
    if use:
        useful, wasted = human.energy(use.useful_kwh), human.energy(use.wasted_kwh)
        yield "energy", f"{useful} useful, {wasted} wasted ({human.energy_sources(use)})"


def _units(job: JobDetail) -> Iterable[tuple[str, RenderableType]]:
    """Yield what limits the number of the job's running tasks."""
    if job.max_running is not None:
        yield "at once", f"at most {human.plural(job.max_running, 'task')}"
    if needs := job.spec.requires.needs:
        yield "needs", ", ".join(f"{units} {name}" for name, units in needs.items())
    if job.spec.requires.exclusive:
        yield "exclusive", "a whole worker for each task"
    if gpus := job.spec.requires.gpus:
        yield "GPUs", f"{gpus} for each task{_kind_of_gpus(job.spec.requires)}"


def _kind_of_gpus(requires: Requirements) -> str:
    memory, model, capability, _ = requires.gpu_kind
    parts = (model, f"at least {human.amount(memory)}" if memory else "", f"CUDA {capability}" if capability else "")
    return "".join(f", {part}" for part in parts if part)


def planned(plan: PlanView, nodes: int) -> Iterable[tuple[str, RenderableType]]:
    """Yield the planned start of a gang that waits, and what has become of earlier promises."""
    if plan.started_at is None and plan.start_at is None:
        yield "planned", f"no start yet: {plan.reason or f'too few workers for {nodes} nodes are there'}"
    elif plan.started_at is None and plan.start_at is not None:
        early = f", as likely as not by {human.moment(plan.p50_at)}" if plan.p50_at is not None else ""
        where = f"on {', '.join(plan.machines)}" if plan.machines else f"on {nodes} workers not chosen yet"
        limit = f"for {human.duration(plan.limit_s)}{'' if plan.limit_is_given else ' (predicted)'}"
        start = f"{human.moment(plan.start_at)}{early} {where}  {limit}"
        yield "promised" if plan.kind == "promise" else "estimated", start
    if plan.broken:
        yield "promise", Text(f"broken: {plan.broken_reason}", "bold red")


def _expected(predicted: Prediction | None) -> str:
    """Return the prediction for a task, to stand after the size of its job."""
    if predicted is None:
        return ""
    spread = f"{human.duration(predicted.p10)} to {human.duration(predicted.p90)}"
    return f"  (a task {human.duration(predicted.work)}, {spread}, from {human.plural(predicted.runs, 'run')})"


def _held_so_far(eta: Eta) -> str:
    if eta.p50_held is None or eta.p90_held is None:
        return ""
    jobs = human.plural(eta.judged, "job")
    return (
        f"; past estimates ({jobs}): {eta.p50_held:.0%} finished by the early one, {eta.p90_held:.0%} by the late one"
    )


def _accounting(used: JobAccounting) -> str:
    """Return the CPU time of a job, by its use; zeros are left out."""
    figures = {
        "kept by checkpoints": used.kept_cpu_s,
        "wasted by losers": used.wasted_cpu_s,
        "lost": used.lost_cpu_s,
        "on replicas": used.replicated_cpu_s,
        "by replicas that won": used.won_cpu_s,
    }
    more = (f", {human.duration(seconds)} {what}" for what, seconds in figures.items() if seconds)
    return f"{human.duration(used.useful_cpu_s)} useful{''.join(more)}"


def _checkpoints(used: JobAccounting) -> str:
    stopped = f"tasks were stopped for {human.duration(used.checkpoint_held_s)}"
    return f"{used.checkpoints:,} sent, {human.amount(used.checkpoint_bytes)}; {stopped}"


def tasks(items: Sequence[TaskView]) -> RenderableType:
    """Return a table of tasks."""
    now = time.time()
    made = table(
        "task", "parameters", "state", "worker", "took", "exit", "failures", "why", right=("exit", "failures"),
        drop=("failures", "worker", "took"), fold={"parameters": 20, "why": 20, "worker": 12},
    )  # fmt: skip
    for task in items:
        made.add_row(
            str(task.id), _parameters(task), state("prefetched" if task.prefetched else task.state),
            task.worker or "-", _took(task, now),
            "-" if task.exit_code is None else str(task.exit_code), str(task.failures), _why(task),
        )  # fmt: skip
    return made


def _parameters(task: TaskView) -> Text:
    return Text(" ".join(f"{name}={value}" for name, value in (task.parameters or {}).items()))


def _took(task: TaskView, now: float) -> str:
    """Return how long the attempt ran that the task's row is about, or has run so far."""
    if task.wall_s is not None:
        return human.duration(task.wall_s)
    return "-" if task.prefetched else human.between(task.began_at, None, now)


def _why(task: TaskView) -> Text:
    mismatch = "results differ" if task.mismatch else ""
    done = "" if task.progress is None else f"{task.progress:.0%} done"
    return Text("; ".join(filter(None, (task.reason, mismatch, done, _resumed(task.resumed)))))


def _resumed(by: ResumedView | None) -> str:
    """Return what an attempt continued from."""
    if by is None:
        return ""
    at = "" if by.progress is None else f"at {by.progress:.0%}, "
    again = f", {by.times} times so far" if by.times > 1 else ""
    return f"resumed {at}after {human.duration(by.wall_s)} of work, from {by.worker}{again}"


_MISSING_MODULE = re.compile(r"No module named '([^'.]+)")
_ABOUT_MODULES = (
    "{0} is missing there: if it is yours, add --input {0}.py (or {0}/); else name the packages that tasks need in a"
    " list, --requirements FILE, or an image that has them, --image IMAGE"
)
_ABOUT_LOOPLINE = (
    "environments and images lack the package loopline: for checkpoints, add a copy of its file checkpoint.py as"
    " --input checkpoint.py, and write `import checkpoint`"
)


def explanation(item: Explanation) -> RenderableType:
    """Return an explanation and its reasons."""
    reasons = [Text(f"  {reason.count:>6,}  {reason.detail}") for reason in item.reasons]
    lines = [Text.assemble((item.subject, "bold"), f": {item.sentence}"), *reasons]
    if missing := _MISSING_MODULE.search("\n".join(line.plain for line in lines)):
        advice = _ABOUT_LOOPLINE if missing[1] == "loopline" else _ABOUT_MODULES.format(missing[1])
        lines.append(Text(advice))
    return Group(*lines)


def workers(items: Sequence[WorkerView]) -> RenderableType:
    """Return a table of workers."""
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
        "yield time",
        "system",
        "last seen",
        "labels",
        right=("slots",),
        drop=("yield time", "memory free", "system", "labels", "spare CPU", "last seen"),
        fold={"worker": 20, "owner": 16, "labels": 12},
    )
    for worker in items:
        load, facts = worker.load, worker.facts
        made.add_row(
            worker.name, worker_state(worker), f"{worker.slots_used}/{worker.slots}",
            f"{load.spare_cpu:.1f} of {facts.cpus}" if load else "-",
            human.amount(load.memory_available_bytes) if load else "-",
            owner(load) if load else "-", _yielded(load.yielded) if load else "-",
            _system(facts), human.ago(worker.reported_at, now), " ".join([*facts.labels, *_resources(worker)]),
        )  # fmt: skip
    return made


def _resources(worker: WorkerView) -> Iterable[str]:
    """Return the worker's resources, with the units that are in use: ``fpga=1/2``."""
    used = worker.resources_used
    return (f"{one.name}={used.get(one.name, 0)}/{one.units}" for one in worker.facts.resources)


def gpus(items: Sequence[WorkerView]) -> RenderableType:
    """Return a table of the workers' GPUs."""
    made = table("worker", "GPU", "model", "memory", "CUDA", "driver", "state", fold={"worker": 20, "model": 24})
    count = 0
    for worker in items:
        withheld = {gpu.id: gpu.reason for gpu in worker.load.withheld_gpus} if worker.load else {}
        for gpu in (gpu for one in worker.facts.resources for gpu in one.gpus):
            used = ", ".join(f"task {use.attempt} of {use.user}" for use in worker.gpus_used.get(gpu.id, ()))
            state = used or withheld.get(gpu.id, "free")
            memory = human.amount(gpu.memory_bytes) if gpu.memory_bytes else "-"
            count += 1
            made.add_row(
                worker.name, str(gpu.index), gpu.model, memory, gpu.capability or "-", gpu.driver or "-",
                state if worker.connected else "worker away",
            )  # fmt: skip
    return made if count else Text("no worker offers a GPU; `loopline doctor` on a computer says what it finds there")


def outdated(items: Sequence[WorkerView], release: str) -> RenderableType:
    """Return a table of workers of other releases than the master's."""
    if not items:
        return Text(f"all workers run {release}, as the master does")
    made = table("worker", "state", "release", "running", "last seen", fold={"worker": 20})
    for item in items:
        made.add_row(
            item.name,
            worker_state(item),
            item.facts.agent,
            str(len(item.running)),
            human.ago(item.reported_at, time.time()),
        )
    return Group(made, Text(f"the master runs {release}; how to upgrade them: docs/operating.md, Upgrading"))


def _system(facts: Facts) -> str:
    """Return the system and the sandbox that tasks run in, where the worker says so."""
    kind = {"": "", "none": ", no sandbox"}.get(facts.sandbox, f", {facts.sandbox}")
    return f"{facts.os} {facts.arch}{kind}"


def owner(load: Load) -> str:
    """Return how the owner uses the computer, and why slots are withheld."""
    there = "in use" if load.in_use else "-" if load.idle_s is None else f"away {human.duration(load.idle_s)}"
    return there if load.in_use or not load.withheld else f"{there}, {load.withheld}".removeprefix("-, ")


def _yielded(figures: Yielded) -> str:
    """Return p50 and p99 of the time from input to freezing, and the number of times."""
    if not figures.count:
        return "-"
    return f"p50 {figures.p50_s:.3f}s p99 {figures.p99_s:.3f}s of {figures.count:,}"


def worker_state(worker: WorkerView) -> Text:
    """Return the state of a worker in its colour."""
    if not worker.connected:
        if worker.sleep and worker.sleep.since is not None:
            return Text(f"asleep since {human.clock(worker.sleep.since, time.time())}", "blue")
        return Text(f"away, refused: {worker.refused}", "bold red") if worker.refused else Text("away", "red")
    if worker.twin:
        return Text(f"two computers: {worker.twin} has its identity too", "bold red")
    if worker.quarantine is not None:
        return Text("quarantined", "bold red")
    if worker.draining:
        return Text(f"draining: {worker.drain_reason}" if worker.drain_reason else "draining", "yellow")
    if worker.left_out:
        more = ", ".join(f"{units} {name}" for name, units in worker.left_out.items())
        return Text(f"connected, its token forbids {more}", "yellow")
    return Text("half-open", "yellow") if worker.half_open else Text("connected", "green")


def tokens(items: Sequence[TokenView]) -> RenderableType:
    """Return a table of tokens."""
    titles = ("token", "name", "role", "offers", "created", "ends", "last used", "from")
    made = table(*titles, drop=("created", "from", "offers"), fold={"name": 16})
    for token in items:
        made.add_row(
            token.id, token.name, token.role, _offers(token), human.moment(token.created_at), _end_of(token),
            human.moment(token.used_at), token.used_from,
        )  # fmt: skip
    return made


def _offers(token: TokenView | JoinTokenView) -> str:
    """Return the resources that a worker with the token may offer."""
    if token.offers is None:
        return "any" if isinstance(token, JoinTokenView) or token.role == "worker" else ""
    return ", ".join(f"{name}={units}" for name, units in token.offers.items()) or "none"


def _end_of(token: TokenView) -> str:
    if token.revoked_at is not None:
        return f"revoked {human.moment(token.revoked_at)}"
    return human.moment(token.expires_at)


def audit_log(items: Sequence[AuditEntry]) -> RenderableType:
    """Return a table of what was done."""
    made = table("when", "who", "role", "token", "from", "did", "on", drop=("token", "role"), fold={"who": 16})
    for entry in items:
        did = entry.did.replace("_", " ")
        made.add_row(human.moment(entry.at), entry.who, entry.role, entry.token, entry.address, did, entry.on)
    return made


def passing(report: PassingReport) -> RenderableType:
    """Return the count of the audit, ``3 completions checked, 0 order violations``, and the latest ones."""
    line = Text.assemble(
        f"{human.plural(report.completions, 'completion')} checked, ",
        (human.plural(report.passings, "order violation"), "bold red" if report.passings else "green"),
        *(f", {count:,} exempt ({reason})" for reason, count in report.excused.items()),
    )
    if report.within is OrderWithin.USER:
        line = Text.assemble(line, "; the order holds among the jobs of each user")
    pairs = (
        Text(f"  job {pair.job} completed before job {pair.passed}: {pair.reason or 'an order violation'}")
        for pair in report.latest
    )
    unfounded = (
        Text(f"  job {one.job} held no other job ({one.reason}), without evidence: {one.flaw}", style="bold red")
        for one in report.unfounded
    )
    return Group(line, *unfounded, *pairs)


def join_tokens(items: Sequence[JoinTokenView]) -> RenderableType:
    """Return a table of join tokens."""
    made = table("join token", "used", "offers", "created", "expires", "revoked")
    for token in items:
        made.add_row(
            token.id, f"{token.used}/{token.uses}", _offers(token), human.moment(token.created_at),
            human.moment(token.expires_at), human.moment(token.revoked_at),
        )  # fmt: skip
    return made
