"""``loopline limits`` and ``limit``: limits of licences and other countable things."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

from rich.console import Group, RenderableType
from rich.text import Text

from loopline.cli import values
from loopline.cli.common import PLAIN, Common, read_by
from loopline.cli.errors import usage
from loopline.cli.render import tables
from loopline_shared.rest import bodies

Value = TypeVar("Value")


async def limits(*, common: Common = PLAIN) -> None:
    """Show the limits, with the units that users hold."""
    async with common.client() as client:
        view = await client.limits()
    common.show(view, lambda: _table(view))


async def limit(
    what: str | None = None,
    /,
    *,
    user: str | None = None,
    per_user: bool = False,
    job: Annotated[int | None, read_by(values.job, "JOB")] = None,
    common: Common = PLAIN,
) -> None:
    """Limit the units of something that tasks hold together, or the running tasks of a job.

    Without a limit to set, this shows them all, as `loopline limits` does.
    Tasks hold what their jobs ask for (`--need NAME=UNITS`). Running tasks stay when a limit is lowered.

    Examples:

        loopline limit matlab=8                   eight licences
        loopline limit matlab=2 --per-user        two of them for each user
        loopline limit matlab=4 --user ann        four of them for ann
        loopline limit matlab=none                removed
        loopline limit --job 12 10                ten tasks of job 12 at a time

    Parameters
    ----------
    what
        NAME=UNITS or NAME=none (admins only); with `--job`, a number of tasks or `none` (default: show the limits).
    user
        The limit of this user.
    per_user
        The limit of each user who has no limit of their own.
    job
        Limit the running tasks of this job.
    """
    if what is None:
        if user is not None or per_user or job is not None:
            raise usage("a limit is missing", "such as `loopline limit matlab=8`, or `loopline limit --job 12 10`")
        await limits(common=common)
        return
    if job is not None:
        if user is not None or per_user:
            raise usage("--job goes with neither --user nor --per-user")
        await _limit_job(job, what, common)
        return
    if user is not None and per_user:
        raise usage("give either --user or --per-user")
    name, text = _read(values.pair, what)
    units = _read(values.units, text)
    async with common.client() as client:
        if units is None:
            view = await client.remove_limit(name, user, per_user=per_user)
        else:
            view = await client.set_limit(name, units, user, per_user=per_user)
    common.show(view, lambda: _table(view))


async def _limit_job(job: int, tasks: str, common: Common) -> None:
    async with common.client() as client:
        changed = await client.limit_job(job, _read(values.units, tasks))
    most = "any number" if changed.max_running is None else f"at most {changed.max_running}"
    common.show(changed, lambda: Text(f"job {changed.id}: {most} of its tasks at a time"))


def _read(read: Callable[[str], Value], text: str) -> Value:
    """Return the value. Raises LooplineError (usage) if it cannot be read."""
    try:
        return read(text)
    except ValueError as error:
        raise usage(str(error), "such as: loopline limit matlab=8") from None


def _table(view: bodies.LimitsView) -> RenderableType:
    unset = [
        Text(f"{name}: not set, its limit_command fails: {why}", style="red") for name, why in view.unset.items()
    ]
    if not view.limits:
        return Group(Text("no limits; set one: loopline limit NAME=UNITS"), *unset)
    made = tables.table("limit", "for", "in use", "by", right=("in use",), fold={"limit": 24, "for": 16, "by": 40})
    for one in view.limits:
        counted = {one.user: one.used.get(one.user, 0)} if one.user is not None else one.used
        users = ", ".join(f"{user} {used}" for user, used in counted.items() if used)
        in_use = f"up to {one.units}" if one.per_user else f"{sum(counted.values())} of {one.units}"
        made.add_row(one.name, _whom(one), in_use, users or "-")
    notes = (Text(f"{one.name}: {one.note}", style="yellow") for one in view.limits if one.note)
    return Group(made, *notes, *unset)


def _whom(one: bodies.LimitView) -> str:
    return "each user" if one.per_user else one.user or "the grid"
