"""``loopline history``, ``energy`` and ``shares``: use by users, workers and jobs, and past runs of programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Group, RenderableType
from rich.text import Text

from loopline.cli import values
from loopline.cli.common import PLAIN, Common, page_size, read_by, some
from loopline.cli.errors import usage
from loopline.cli.render import human, knowledge, tables
from loopline.cli.render.energy_table import energy_table
from loopline_shared.rest import bodies


async def history(
    *,
    by: Literal["user", "worker", "job", "program"] = "user",
    since: Annotated[float, read_by(values.since, "TIME")] = 0.0,
    limit: Annotated[int, Parameter(alias="-n")] = 100,
    user: str | None = None,
    name: str | None = None,
    forecasts: bool = False,
    parallel: bool = False,
    swf: Path | None = None,
    fta: Path | None = None,
    common: Common = PLAIN,
) -> None:
    """Sum up the processor time that tasks took: useful, on replicas, wasted on losing replicas, lost.

    Time that checkpoints kept of stopped attempts is listed as kept, with the bytes sent for them. Energy is listed
    where it was measured or declared (`loopline energy`).

    By program: what the latest runs tell, which predicts jobs without a size. Jobs of one user, name and folder are
    runs of one program. `--json` has the runs themselves.

    Parameters
    ----------
    by
        A line for each user, worker, job or program.
    since
        Only what ended since then: 7d ago, or a time with its zone such as 2027-01-31T08:00:00+01:00 (default: all).
    limit
        At most so many lines, the greatest first; programs: the latest used first.
    user
        Only programs of this user.
    name
        Only programs of this name.
    forecasts
        Show how accurate the ETAs of completed jobs were instead, and how promised starts of gangs were kept.
    parallel
        Show instead how much of the grid was used, and how long jobs waited by their number of nodes (`--nodes`).
    swf
        Write the jobs that ended into this file, in the Standard Workload Format, as `loopline simulate trace` reads.
    fta
        Write when workers were connected into this file, in the format of the Failure Trace Archive.
    """
    asked = {"--swf or --fta": swf or fta, "--parallel": parallel, "--forecasts": forecasts}
    _check(by, [option for option, value in asked.items() if value], user or name)
    if swf or fta:
        await _export(swf, fta, since, common)
        return
    async with common.client() as client:
        if parallel:
            measured = await client.parallel(since=since)
            common.show(measured, lambda: _parallel(measured))
        elif forecasts:
            held = await client.forecasts()
            common.show(held, lambda: _held(held))
        elif by == "program":
            items = await some(limit, client.programs(user, name, page_size=page_size(limit)))
            common.show(items, lambda: tables.cut(knowledge.programs(items), len(items), limit))
        else:
            report = await client.history(by, since=since, limit=limit)
            common.show(report, lambda: _picture(report, by))


def _check(by: str, asked: Sequence[str], chooses: str | None) -> None:
    """Refuse options that would be ignored."""
    if len(asked) > 1:
        raise usage(f"{asked[0]} and {asked[1]} ask for different things", "give one of them at a time")
    if chooses and (asked or by != "program"):
        raise usage("--user and --name choose among programs", "add: --by program")


async def _export(swf: Path | None, fta: Path | None, since: float, common: Common) -> None:
    from loopline.cli.render.archives import write_fta, write_swf

    written = []
    async with common.client() as client:
        if swf:
            jobs = await write_swf(client.past_jobs(since=since), swf)
            written.append({"file": str(swf), "jobs": jobs})
        if fta:
            workers = await write_fta(client.stays(since=since), fta)
            written.append({"file": str(fta), "workers": workers})
    common.show(written, lambda: Text("\n".join(map(_written, written))))


def _written(one: dict[str, Any]) -> str:
    what = human.plural(one["jobs"], "job") if "jobs" in one else human.plural(one["workers"], "worker")
    return f"wrote {what} to {one['file']}"


async def energy(
    *,
    by: Literal["user", "worker", "job"] = "user",
    since: Annotated[float, read_by(values.since, "TIME")] = 0.0,
    limit: Annotated[int, Parameter(alias="-n")] = 100,
    common: Common = PLAIN,
) -> None:
    """Show the energy that tasks used: useful, and wasted on attempts whose results do not count.

    The total is of all users, listed or not. Figures are above the power that an idle computer draws. A worker
    measures them, or its operator declares watts. CO2 is shown if the master's `co2_grams_per_kwh` is set.

    Parameters
    ----------
    by
        A line for each user, worker or job.
    since
        Only attempts that ended since then: 7d ago, or a time with its zone such as 2027-01-31T08:00:00+01:00
        (default: all).
    limit
        At most this many lines, those with the most energy first.
    """
    async with common.client() as client:
        report = await client.history(by, since=since, limit=limit, sort="energy")
    common.show(report, lambda: energy_table(report, by))


async def shares(user: str | None = None, share: float | None = None, /, *, common: Common = PLAIN) -> None:
    """Show what each user has used lately, against their share. The user in the first line is next.

    Use is the time that tasks had slots; half of it is forgotten each day, unless the master says otherwise.

    Parameters
    ----------
    user
        User who is to have another share (admins only).
    share
        Their new share. All begin with 1: a user with 2 gets twice the slots of one with 1, if both want all.
    """
    if user is not None and share is None:
        raise usage("the share is missing", f"such as: loopline shares {user} 2")
    async with common.client() as client:
        view = await (client.shares() if user is None or share is None else client.set_share(user, share))
    common.show(view, lambda: _shares(view))


def _shares(view: bodies.SharesView) -> RenderableType:
    if not view.is_kept:
        why = "there are not yet two users" if len(view.users) < 2 else "the master was started with --shares off"
        note = Text(f"no account is kept: {why}", "dim")
    else:
        note = Text(f"half of what was used is forgotten in {human.duration(view.half_life_s)}", "dim")
    figures = ("share", "due", "used", "slot time", "slots", "jobs")
    near = ("near its limit",) if any(_near(one) for one in view.users) else ()
    made = tables.table("user", *figures, *near, right=figures, fold={"user": 24})
    for one in view.users:
        part = ("-" if value is None else f"{value:.0%}" for value in (one.due, one.used))
        cells = (human.duration(one.used_s), str(one.slots), str(one.jobs), *([_near(one)] * len(near)))
        made.add_row(one.user, f"{one.share:g}", *part, *cells)
    return Group(note, made)


def _near(user: bodies.UserShare) -> str:
    """Return the limits of which a user has used four fifths."""
    close = (limit for limit in user.limits if limit.used >= 0.8 * limit.allowed)
    return ", ".join(map(_used, close))


def _used(limit: bodies.LimitUse) -> str:
    if limit.what.endswith("_bytes"):
        return f"{human.amount(limit.used)} of {human.amount(limit.allowed)} of {limit.what.removesuffix('_bytes')}s"
    return f"{limit.used:,} of {limit.allowed:,} {limit.what}"


def _picture(report: bodies.HistoryReport, by: bodies.HistorySubject) -> RenderableType:
    if not report.lines:
        return Text("nothing has run in that time")
    has_checkpoints = any(line.checkpoints for line in report.lines)
    has_energy = any(line.energy for line in report.lines)
    more = (*(("kept", "checkpoints") if has_checkpoints else ()), *(("energy",) if has_energy else ()))
    figures = ("jobs", "tasks", "attempts", "slot time", "CPU useful", "on replicas", "wasted", "lost", *more)
    names = (by, "name") if by == "job" else (by,)
    less_important = ("attempts", "on replicas", "lost", "slot time", "jobs", "checkpoints", "energy")
    made = tables.table(*names, *figures, right=figures, drop=less_important, fold={"name": 16, by: 16})
    for line in report.lines:
        counts = [f"{count:,}" for count in (line.jobs, line.tasks, line.attempts)]
        times = (line.wall_s, line.useful_cpu_s, line.replicated_cpu_s, line.wasted_cpu_s, line.lost_cpu_s)
        subject = (line.subject, Text(line.name)) if by == "job" else (line.subject,)
        cells = [*counts, *map(human.duration, times)]
        if has_checkpoints:
            cells += [human.duration(line.kept_cpu_s), f"{line.checkpoints:,}, {human.amount(line.checkpoint_bytes)}"]
        if has_energy:
            cells.append(human.energy(line.energy.useful_kwh + line.energy.wasted_kwh) if line.energy else "-")
        made.add_row(*subject, *cells)
    since = f"since {human.moment(report.since)}" if report.since else "since the beginning"
    return Group(Text(since, "dim"), made)


def _parallel(report: bodies.ParallelReport) -> RenderableType:
    """Return the two measures of the rack paper: utilisation, and waits against nodes."""
    shares = [
        f"{what} {seconds / report.offered_s:.0%}"
        for what, seconds in (("used", report.used_s), ("by jobs on several nodes", report.parallel_s))
        if report.offered_s
    ]
    lines = [f"of the slots that workers offered: {', '.join(shares)}"] if shares else []
    if report.s_per_node is not None and report.residual_s is not None:
        each, more = human.duration(abs(report.s_per_node)), "more" if report.s_per_node >= 0 else "less"
        residual = human.duration(report.residual_s)
        spread = f"correlation {report.correlation or 0:.2f}, distance from the line {residual}"
        lines.append(f"each node makes a job wait {each} {more} ({spread})")
    if not report.waits:
        return Group(*map(Text, lines), Text("no job on several nodes has started in that time"))
    figures = ("nodes", "jobs", "mean wait", "longest")
    made = tables.table(*figures, right=figures)
    for one in report.waits:
        times = (human.duration(one.mean_wait_s), human.duration(one.longest_wait_s))
        made.add_row(str(one.nodes), f"{one.jobs:,}", *times)
    return Group(*map(Text, lines), made)


def _held(report: bodies.ForecastReport) -> RenderableType:
    return Group(_held_etas(report), *_kept_plans(report.plans))


def _kept_plans(plans: bodies.PlanReport) -> list[Text]:
    """Return lines about promised and estimated starts of gangs, if there were any."""
    lines, early_s = [], plans.early_p50_s or 0.0
    if plans.promises:
        early = f", half of them {human.duration(early_s)} sooner or more" if early_s >= 1 else ""
        lines.append(f"promised starts: {plans.kept:,} of {plans.promises:,} kept{early}")
    lines += [f"  job {one.job}: promised for {human.moment(one.promised_at)}, {one.reason}" for one in plans.broken]
    if plans.p50_held is not None and plans.p90_held is not None:
        shares = f"{plans.p50_held:.0%} by their p50, {plans.p90_held:.0%} by their p90"
        lines.append(f"estimated starts: {plans.estimates:,}, {shares}; {plans.delayed:,} were delayed once or more")
    return [Text(line) for line in lines]


def _held_etas(report: bodies.ForecastReport) -> RenderableType:
    made = tables.table(
        "estimated at", "jobs", "done by p50", "done by p90", right=("jobs", "done by p50", "done by p90")
    )
    for moment in report.moments:
        shares = ("-" if share is None else f"{share:.0%}" for share in (moment.p50_held, moment.p90_held))
        made.add_row(f"{moment.moment} % done" if moment.moment else "first task", f"{moment.jobs:,}", *shares)
    return made
