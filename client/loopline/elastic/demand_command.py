"""``loopline demand``: tasks that could start now if there were slots for them."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from loopline.cli.common import PLAIN, Common
from loopline.cli.render import human, tables
from loopline_shared.rest import bodies


async def demand(*, common: Common = PLAIN) -> None:
    """Show what could start now if there were slots for it, a line for each different requirement.

    Tasks that are held, paused or beyond a limit of their user are not counted: another worker would not have them
    start. `loopline elastic` asks for workers by this.
    """
    async with common.client() as client:
        view = await client.demand()
    common.show(view, lambda: _picture(view))


def _picture(view: bodies.DemandView) -> RenderableType:
    if not view.demands:
        return Text("nothing more could start now, however many workers there were")
    figures = ("jobs", "tasks", "coming", "waiting", "slots", "nodes", "expected", "workers")
    made = tables.table(
        "needs", *figures, right=figures, fold={"needs": 32}, drop=("coming", "nodes", "jobs", "expected")
    )
    for one in view.demands:
        counts = (f"{count:,}" for count in (one.jobs, one.tasks, one.coming, one.waiting, one.slots, one.nodes))
        expected = "-" if one.expected_s is None else human.duration(one.expected_s)
        made.add_row(Text(_needs(one)), *counts, expected, f"{one.workers:,}")
    return Group(Text(f"{view.slots:,} slots more would be busy at once", "dim"), made)


def _needs(one: bodies.DemandLine) -> str:
    """Return the requirements of a line in a few words."""
    words = [one.os or "", f"{one.memory_bytes / 1e9:g} GB" if one.memory_bytes else "", *one.labels]
    words += [f"{units} {name}" for name, units in one.needs.items()]
    words += ["network" if one.network else "", f"functions of {one.python}" if one.python else ""]
    return ", ".join(filter(None, (*words, one.folder, one.software))) or "anything"
