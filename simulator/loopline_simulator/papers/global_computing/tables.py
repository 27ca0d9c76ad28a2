"""Settings as tables of at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopline_simulator.experiments.comparison import Cell
from loopline_simulator.experiments.tables import bare_table, columns, number, plain, spaced
from loopline_simulator.papers.global_computing.comparison import BASES, QueueingSetting, SchedulerRow
from loopline_simulator.papers.global_computing.published import TIMES
from loopline_simulator.statistics import Estimate

_OF_CLIENTS = (1, 2)
"""Tables about clients; all others are about schedulers."""


def picture(settings: Sequence[QueueingSetting]) -> RenderableType:
    tables: list[RenderableType] = []
    for _, group in groupby(settings, key=lambda setting: (setting.table, setting.reading, setting.traffic)):
        members = list(group)
        if members[0].table in _OF_CLIENTS:
            tables.append(_clients(members))
        else:
            tables.extend(_times(setting) for setting in members)
            tables.append(_choices(members))
        tables.append(_assumptions(members[0]))
    return Group(*spaced([*tables, _legend(settings)]))


def _title(setting: QueueingSetting) -> str:
    of_paper = f"Table {setting.table} ({setting.reading}), " if setting.table else ""
    return f"{of_paper}{setting.traffic} traffic"


def _clients(settings: Sequence[QueueingSetting]) -> Table:
    table = bare_table(f"[bold]{_title(settings[0])}[/]")
    table.add_column("", no_wrap=True)
    table.add_column("client")
    rows = [(setting, row) for setting in settings for row in setting.rows[0].clients]
    known = rows[0][1].throughput.paper is not None
    for measure in ("KB/s", "Mflops"):
        _add_columns(table, measure, known)
    last = ""
    for setting, row in rows:
        cells = (*columns(row.throughput, known), *columns(row.performance, known))
        table.add_row(Text("" if setting.title == last else setting.title), Text(row.client, "cyan"), *cells)
        last = setting.title
    return table


def _add_columns(table: Table, measure: str, beside_paper: bool) -> None:
    table.add_column(measure, justify="right", style="bold")
    if beside_paper:
        table.add_column("paper", justify="right", style="dim")
    table.add_column("ratio ±" if beside_paper else "±", justify="right")


def _times(setting: QueueingSetting) -> Table:
    table, known = bare_table(f"[bold]{_title(setting)}: {setting.title}[/]"), _is_known(setting)
    table.add_column("seconds", no_wrap=True, min_width=9)
    for time in TIMES:
        _add_columns(table, time, known)
    for row in setting.rows:
        cells = [text for time in TIMES for text in columns(row.times[time], known)]
        table.add_row(Text(row.scheduler, "bold cyan"), *cells)
    return table


def _is_known(setting: QueueingSetting) -> bool:
    return any(row.times["total"].paper is not None for row in setting.rows)


def _choices(settings: Sequence[QueueingSetting]) -> Table:
    """Show the use of servers, the requests sent to each, and total times over those of the base schedulers."""
    table = bare_table("[bold]Servers in use, requests sent to each, total time over others' on the same seeds[/]")
    servers = settings[0].servers[:_MOST_SERVERS]
    for title in ("setting", ""):
        table.add_column(title, no_wrap=title == "")
    for server in servers:
        table.add_column(f"{server} %", justify="right")
    for server in servers:
        table.add_column(f"to {server}", justify="right")
    for base in BASES:
        table.add_column(f"over {base} ±", justify="right")
    for setting in settings:
        for row in setting.rows:
            first, last = row is setting.rows[0], row is setting.rows[-1]
            table.add_row(setting.title if first else "", *_choice(row), end_section=last)
    return table


_MOST_SERVERS = 3


def _choice(row: SchedulerRow) -> Iterator[RenderableType]:
    yield Text(row.scheduler, "bold cyan")
    yield from (_use(use) for use in row.use[:_MOST_SERVERS])
    yield from (f"{chosen.mean:.0%}" for chosen in row.chosen[:_MOST_SERVERS])
    yield from (_over(row.total_over.get(base)) for base in BASES)


def _use(cell: Cell) -> str:
    return f"{cell.ours.mean:.1f}" if cell.paper is None else f"{cell.ours.mean:.1f} ({cell.paper:.1f})"


def _over(share: Estimate | None) -> Text:
    if share is None:
        return Text("")
    colour = "green" if share.mean + share.half_width < 1 else "red" if share.mean - share.half_width > 1 else ""
    return Text(f"{number(share.mean)} ±{plain(share.half_width)}", colour)


def _assumptions(setting: QueueingSetting) -> Text:
    return Text("\n".join(f"· {assumption}" for assumption in setting.assumptions), "dim")


def _legend(settings: Sequence[QueueingSetting]) -> Text:
    lines = [
        "communication: with the wait for the client's own earlier data; computing: with that for the server.",
        "±: half the width of the 95 % interval over the seeds.",
        "over: mean total time over that scheduler's; green: surely less, red: surely more.",
    ]
    if any(setting.table for setting in settings):
        lines[:0] = ["text: as the paper's text has it; fitted: as its published figures imply; see the assumptions."]
        lines[2:2] = ["paper (and in brackets): its figure; ratio: ours over it."]
    return Text("\n".join(lines), "dim")
