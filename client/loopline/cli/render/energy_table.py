"""Energy of users, workers or jobs as a table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from loopline.cli.render import human, tables
from loopline_shared.rest import bodies


def energy_table(report: bodies.HistoryReport, by: bodies.HistorySubject) -> RenderableType:
    """Return a table of the energy in a report, with the energy of all users."""
    known = [(line, line.energy) for line in report.lines if line.energy]
    if not report.energy:
        return Text(
            "no worker measured or declared energy in that time: set watts_idle and watts_busy, or watts_command, "
            "on workers"
        )
    grams = report.co2_grams_per_kwh
    figures = ("useful", "wasted", *(("CO2",) if grams is not None else ()))
    names = (by, "name") if by == "job" else (by,)
    made = tables.table(*names, *figures, "found by", right=figures, fold={"name": 16, by: 16})
    for line, use in known:
        subject = (line.subject, Text(line.name)) if by == "job" else (line.subject,)
        made.add_row(*subject, *_figures(use.useful_kwh, use.wasted_kwh, grams), human.energy_sources(use))
    total: list[RenderableType] = [made, Text(_total(report.energy.useful_kwh, report.energy.wasted_kwh, grams))]
    if rest := len(report.lines) - len(known):
        total.append(Text(f"listed without a figure: {human.plural(rest, by)}", "dim"))
    since = f"since {human.moment(report.since)}" if report.since else "since the beginning"
    return Group(Text(since, "dim"), *total)


def _figures(useful_kwh: float, wasted_kwh: float, grams: float | None) -> list[str]:
    co2 = [] if grams is None else [human.grams((useful_kwh + wasted_kwh) * grams)]
    return [human.energy(useful_kwh), human.energy(wasted_kwh), *co2]


def _total(useful_kwh: float, wasted_kwh: float, grams: float | None) -> str:
    useful, wasted, *co2 = _figures(useful_kwh, wasted_kwh, grams)
    emitted = "".join(f", {one} of CO2 at {grams:g} g per kWh" for one in co2)
    return f"total: {useful} useful, {wasted} wasted{emitted}"
