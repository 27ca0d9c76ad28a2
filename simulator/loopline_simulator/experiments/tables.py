"""Comparisons as tables of at most 100 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loopline_simulator.experiments.comparison import BASE, Cell, PolicyComparison, PolicyRow
from loopline_simulator.experiments.paper import TIMES
from loopline_simulator.statistics import Estimate

_FORMATS = ((10, 2, 1, ""), (100, 1, 1, ""), (1e4, 0, 1, ""), (1e5, 1, 1e3, "k"), (1e6, 0, 1e3, "k"))
"""Number formats: upper limit, digits after the point, divisor, unit sign."""
_CLOSE, _NEAR = 0.08, 0.25
"""Distance from the paper's figure that counts as close (green) or near (yellow); a larger one is red."""


def picture(comparisons: Sequence[PolicyComparison]) -> RenderableType:
    tables = [_times(comparison) for comparison in comparisons]
    return Group(*spaced([*tables, _promises(comparisons), _legend(comparisons)]))


def spaced(parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield part
        yield Text()


def _times(comparison: PolicyComparison) -> Table:
    beside_paper = any(cell.paper is not None for row in comparison.rows for cell in row.means.values())
    table = bare_table(_title(comparison))
    table.add_column("", no_wrap=True, min_width=15)
    for time in TIMES:
        table.add_column(time, justify="right", style="bold")
        if beside_paper:
            table.add_column("paper", justify="right", style="dim")
        table.add_column("ratio ±" if beside_paper else "±", justify="right")
    for row in comparison.rows:
        for label, cells in ((row.policy, row.means), ("  variance", row.variances)):
            is_variance = cells is row.variances
            texts = [text for time in TIMES for text in columns(cells[time], beside_paper)]
            table.add_row(Text(label, "dim" if is_variance else "bold cyan"), *texts, end_section=is_variance)
    return table


def bare_table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)


def _title(comparison: PolicyComparison) -> str:
    known = f"Table {comparison.table}: " if comparison.table else ""
    return f"[bold]{known}a job every {comparison.interval:.4g} s[/] [dim](load {comparison.load:.2f})[/]"


def columns(cell: Cell, beside_paper: bool) -> Iterator[Text]:
    """Yield our figure, the paper's, and their ratio; without a paper, our figure and its interval."""
    yield Text(number(cell.ours.mean))
    if beside_paper:
        yield Text("" if cell.paper is None else number(cell.paper))
    if cell.ratio is not None:
        yield Text(f"{cell.ratio.mean:.2f} ±{plain(cell.ratio.half_width)}", colour(cell.ratio.mean))
    else:
        yield Text(half_width(cell.ours), "dim")


def colour(ratio: float) -> str:
    off = abs(ratio - 1)
    return "green" if off <= _CLOSE else "yellow" if off <= _NEAR else "red"


def _promises(comparisons: Sequence[PolicyComparison]) -> Table:
    table = bare_table("[bold]What each promises, and its price[/]")
    for title in ("every", "", "order"):
        table.add_column(title)
    has_energy = any(row.kwh for comparison in comparisons for row in comparison.rows)
    more = ("kWh",) if has_energy else ()
    for title in ("passed", "pass-\nable", "total ±", *more, "lost", "(work)", "held", "slow-\ndown", "worst", "PCs"):
        table.add_column(title, justify="right")
    for comparison in comparisons:
        for row in comparison.rows:
            first, last = row is comparison.rows[0], row is comparison.rows[-1]
            table.add_row(f"{comparison.interval:.4g}" if first else "", *_promise(row), end_section=last)
    return table


def _promise(row: PolicyRow) -> Iterator[RenderableType]:
    yield Text(row.policy, "bold cyan")
    yield row.order
    yield Text(f"{row.passed:,}", "red" if row.passed else "green")
    yield f"{row.passable:,}"
    share = row.total_to_base
    yield "" if share is None else f"{share.mean:.3f} ±{plain(share.half_width, 3)}"
    if row.kwh:
        yield number(row.kwh.mean)
    yield f"{row.lost_time.mean:.1%}"
    yield f"{row.lost_work.mean:.1%}"
    yield number(row.held.mean)
    yield number(row.mean_slowdown.mean)
    yield number(row.worst_slowdown)
    yield f"{row.slowest_machines:.2f}"


def _legend(comparisons: Sequence[PolicyComparison]) -> Text:
    lines = [
        "waiting, execution, total: seconds per job; below them their variances over the jobs of a run.",
        "±: half the width of the 95 % interval over the seeds.",
        "passed, passable: pairs of jobs, over all runs. B passes A by completing before it, where A is not",
        "larger and was in the grid when B came.",
        f"total: the mean total over {BASE}'s on the same seeds.",
        "kWh: of all attempts of a run, above what idle PCs draw (--watts).",
        "lost: share of the computing time (of the work) spent in attempts whose result was not used.",
        "held: how long a job's last task (order deliver: its completion) was held, on average.",
        "slowdown: total time over the least that the job needs alone at mean speeds; worst: of any job.",
        "PCs: mean speed of the PCs that computed a job's results, over that of all PCs; the lowest of a job.",
    ]
    if any(comparison.table for comparison in comparisons):
        lines.insert(1, "paper: its figure; ratio: ours over it.")
    return Text("\n".join(lines), "dim")


def number(value: float) -> str:
    """Format a number with three or four significant digits: ``5.85``, ``17.5``, ``6056``, ``28.9k``, ``1.52M``."""
    if math.isnan(value):
        return "?"
    for limit, digits, unit, sign in _FORMATS:
        if abs(value) < limit:
            return f"{value / unit:.{digits}f}{sign}"
    return f"{value / 1e6:.2f}M" if abs(value) < 1e9 else f"{value:.2g}"


def half_width(estimate: Estimate) -> str:
    return f"±{number(estimate.half_width)}"


def plain(half_width: float, digits: int = 2) -> str:
    """Format a half width without its leading zero if it is below one: ``.03``."""
    text = "?" if math.isnan(half_width) else f"{half_width:.{digits}f}"
    return text.removeprefix("0") if text.startswith("0.") else text
