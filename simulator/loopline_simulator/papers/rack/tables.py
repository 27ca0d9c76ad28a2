"""Results as tables: by load, beside Table 1 of the paper, against one algorithm, and the changes of
promised starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopline_simulator.experiments.tables import bare_table, number, plain, spaced
from loopline_simulator.papers.rack.ranking import (
    MORE_IS_BETTER,
    PAPERS,
    ROW_OF,
    SCENARIOS,
    TABLE_1,
    Loads,
    Results,
    Verdict,
    outcome,
)
from loopline_simulator.statistics import Estimate, estimate

BASE = "current"
"""The algorithm that the others are compared with."""
_COLOURS = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "dim"}
_AGREEMENT = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "yellow"}
_TITLES = {"largest_wait": "largest wait"}


def picture(results: Results) -> RenderableType:
    parts: list[RenderableType] = [_measures(results, used) for used in results.scenarios]
    if set(PAPERS) <= set(results.algorithms):
        parts += [_beside_paper(results, used) for used in results.scenarios if used in TABLE_1]
    parts.append(_promises(results))
    if BASE in results.algorithms and len(results.algorithms) > 1:
        parts.append(_against_base(results))
    return Group(*spaced([*parts, _legend()]))


def scenario(used: float | None) -> str:
    if used is None:
        return "as logged"
    known = {1.0: "scenario 1: run time = limit", 0.5: "scenario 2: run time about half the limit"}
    return known.get(used, f"run time {used:.0%} of the limit in the mean")


def _title(what: str, used: float | None) -> str:
    return f"[bold]{what}[/] [dim]({scenario(used)})[/]"


def _measures(results: Results, used: float | None) -> Table:
    table = bare_table(_title("What came out", used))
    table.add_column("load")
    table.add_column("", no_wrap=True)
    for title in ("utilisation ±", "correlation ±", "residual ±", "largest wait ±", "wait", "calls", "needed", "ms"):
        table.add_column(title, justify="right")
    for load in results.loads:
        for name in results.algorithms:
            first, last = name == results.algorithms[0], name == results.algorithms[-1]
            head = ("as logged" if load is None else f"{load:g}") if first else ""
            table.add_row(head, Text(name, "bold cyan"), *_cells(results, used, name, (load,)), end_section=last)
    return table


def _cells(results: Results, used: float | None, name: str, loads: Loads) -> Iterator[str]:
    def found(measure: str) -> Estimate:
        return estimate(results.values(measure, used, name, loads))

    share, fit = found("utilisation"), found("correlation")
    yield f"{share.mean:.1%} ±{plain(100 * share.half_width, 1)}"
    yield f"{fit.mean:.2f} ±{plain(fit.half_width)}"
    for measure in ("residual", "largest_wait"):
        yield f"{number(found(measure).mean)} ±{number(found(measure).half_width)}"
    for measure in ("mean_wait", "calls", "needed"):
        yield number(found(measure).mean)
    yield f"{1000 * fmean(answer.took_s for answer in results.of(used, name, loads)):.0f}"


def _beside_paper(results: Results, used: float) -> Table:
    """Show the orders of the three by paired seeds: green as in Table 1, yellow not separated, red reversed."""
    table = bare_table(f"[bold]Beside the paper's Table 1, scenario {SCENARIOS[used]}[/]")
    table.add_column("measure")
    table.add_column("paper")
    for load in results.loads:
        table.add_column(f"{load:g}", justify="center")
    table.add_column("all loads", justify="center")
    for measure in MORE_IS_BETTER:
        row = ROW_OF[measure]
        grades = " ".join(f"{name[0]}{grade}" for name, grade in zip(PAPERS, TABLE_1[used][row], strict=True))
        columns = [*((load,) for load in results.loads), results.loads]
        orders = [
            Text(results.order(measure, used, loads, PAPERS), _AGREEMENT[results.agreement(measure, used, loads)])
            for loads in columns
        ]
        table.add_row(_row_title(measure, row), grades, *orders)
    return table


def _row_title(measure: str, row: str) -> str:
    title = _TITLES.get(measure, measure)
    return row if measure == row else f"{row}: {title}"


def _promises(results: Results) -> Table:
    table = bare_table("[bold]How planned starts moved[/] [dim](over all loads)[/]")
    table.add_column("used")
    table.add_column("", no_wrap=True)
    for title in ("jobs moved", "moves a job", "steps a move", "steps sooner", "most"):
        table.add_column(title, justify="right")
    for used in results.scenarios:
        for name in results.algorithms:
            first, last = name == results.algorithms[0], name == results.algorithms[-1]
            head = ("as logged" if used is None else f"{used:g}") if first else ""
            table.add_row(head, Text(name, "bold cyan"), *_promise(results, used, name), end_section=last)
    return table


def _promise(results: Results, used: float | None, name: str) -> Iterator[str]:
    def mean(measure: str) -> float:
        return fmean(results.values(measure, used, name, results.loads))

    yield f"{mean('moved'):.1%}"
    for measure in ("moves", "step", "sooner"):
        yield number(mean(measure))
    yield f"{max(answer.measures.soonest for answer in results.of(used, name, results.loads)):.0f}"


def _against_base(results: Results) -> Table:
    table = bare_table(f"[bold]Against {BASE}[/] [dim](differences by paired seeds, over all loads)[/]")
    table.add_column("used")
    table.add_column("", no_wrap=True)
    for measure in MORE_IS_BETTER:
        table.add_column("calls %" if measure == "calls" else _TITLES.get(measure, measure), justify="right")
    table.add_column("loads +/-", justify="right")
    others = [name for name in results.algorithms if name != BASE]
    for used in results.scenarios:
        for name in others:
            head = ("as logged" if used is None else f"{used:g}") if name == others[0] else ""
            cells = [_difference(results, used, name, measure) for measure in MORE_IS_BETTER]
            tally = _tally(results, used, name)
            table.add_row(head, Text(name, "bold cyan"), *cells, tally, end_section=name == others[-1])
    return table


def _difference(results: Results, used: float | None, name: str, measure: str) -> Text:
    found = results.against(measure, used, name, BASE, results.loads)
    colour = _COLOURS[outcome(measure, found)]
    if measure == "calls":
        found = found.over(fmean(results.values(measure, used, BASE, results.loads)))
    digits = {"correlation": 3, "calls": 0}.get(measure, 1)
    unit = 100 if measure in ("utilisation", "calls") else 1
    return Text(f"{unit * found.mean:+.{digits}f} ±{plain(unit * found.half_width, digits)}", colour)


def _tally(results: Results, used: float | None, name: str) -> str:
    """Count the pairs of a load and a measure where the algorithm is better, and where it is worse."""
    outcomes = [
        outcome(measure, results.against(measure, used, name, BASE, (load,)))
        for measure in MORE_IS_BETTER
        for load in results.loads
    ]
    return f"{outcomes.count(Verdict.BETTER)}/{outcomes.count(Verdict.WORSE)}"


def _legend() -> Text:
    lines = [
        "±: half the width of the 95 % interval over the seeds. Times in steps.",
        "utilisation: share of nodes in use, from 20 % of the arrivals' span to the last arrival.",
        "correlation: of waits with nodes; residual: root mean square distance from their line.",
        "calls: of Bottom-Left, one a time tried; needed: of these, those whose answer was unknown.",
        "ms: computing time of a run here, where only needed calls are computed.",
        "n>c=b: naive better than current by its paired interval, current and bold not separated;",
        "green: as the paper grades them; yellow: some pair is not separated; red: some pair is reversed.",
        "used: mean share of its limit that a job runs for.",
        "sooner: than first promised a job starts; most: of any job in any run.",
        "loads +/-: of all loads and measures, in how many better and worse by the paired interval.",
    ]
    return Text("\n".join(lines), "dim")
