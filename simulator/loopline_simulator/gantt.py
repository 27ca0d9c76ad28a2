"""Gantt charts of single runs (the no-passing paper, Figures 2 to 4), as PNG and SVG of the same bytes every time."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from loopline_simulator.drawing import save
from loopline_simulator.fast.metrics import AttemptRecord, JobRecord
from loopline_simulator.fast.trial import Case, record

_SIZE_INCHES = (16, 9.6)
_DPI = 110
_FAINT = 0.28


@dataclass(frozen=True, slots=True)
class Chart:
    """Contents of a chart: a row for each host, a bar for each attempt, and below a row for each job."""

    title: str
    hosts: Sequence[tuple[str, str]]  # name and type
    jobs: Sequence[JobRecord]
    attempts: Sequence[AttemptRecord]


def draw_case(case: Case, folder: Path) -> list[Path]:
    """Run the case and write ``gantt-POLICY-every-INTERVAL.png`` and ``.svg``."""
    recorder, _ = record(case, attempts=True)
    hosts = [(host.name, f"{peak:g}") for host, peak in _by_speed(case)]
    order = f"order {case.order}"
    title = f"{case.policy} ({order}): {case.workload.jobs} jobs, one every {case.workload.interval:g} s"
    chart = Chart(f"{title}, on {case.park.count} PCs", hosts, recorder.jobs(), recorder.attempts)
    return draw(chart, folder / f"gantt-{case.policy}-every-{case.workload.interval:g}")


def _by_speed(case: Case) -> list[tuple[Any, float]]:
    hosts = zip(case.park.hosts(case.seed), case.park.peaks * case.park.count, strict=False)
    return sorted(hosts, key=lambda pair: (-pair[1], pair[0].name))


def draw(chart: Chart, stem: Path) -> list[Path]:
    """Return the files written: ``stem`` with .png and with .svg."""
    return save(lambda: _figure(chart), stem, dpi=_DPI)


def _figure(chart: Chart) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
    colours = {job.id: _colour(place, len(chart.jobs)) for place, job in enumerate(chart.jobs)}
    _draw_hosts(above, chart, colours)
    _draw_jobs(below, chart, colours)
    above.set_title(chart.title, loc="left", fontweight="bold")
    figure.legend(handles=_legend(), loc="outside upper right", ncols=4, frameon=False)
    return figure


def _colour(place: int, count: int) -> tuple[float, float, float]:
    """Return a hue by order of arrival; the lightness alternates to distinguish neighbouring jobs."""
    return colorsys.hls_to_rgb(0.88 * place / max(1, count), (0.42, 0.58, 0.5)[place % 3], 0.68)


def _draw_hosts(axes: Any, chart: Chart, colours: dict[int, Any]) -> None:
    rows = {name: row for row, (name, _) in enumerate(chart.hosts)}
    for won in (True, False):
        bars = [attempt for attempt in chart.attempts if attempt.accepted is won]
        _add_bars(axes, ((rows[bar.worker], bar.start, bar.end, colours[bar.id.job]) for bar in bars), won=won)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    ends = [0]
    for _, group in groupby(chart.hosts, key=lambda host: host[1]):
        ends.append(ends[-1] + len(list(group)))
        axes.axhline(ends[-1] - 0.5, color="black", linewidth=0.6)
    middles = [(start + end - 1) / 2 for start, end in pairwise(ends)]
    kinds = list(dict.fromkeys(kind for _, kind in chart.hosts))
    sizes = [end - start for start, end in pairwise(ends)]
    axes.set_yticks(middles, [f"{size} PCs\nspeed {kind}" for size, kind in zip(sizes, kinds, strict=True)])
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("one row per PC")


def _add_bars(axes: Any, bars: Iterable[tuple[int, float, float, Any]], *, won: bool) -> None:
    from matplotlib.collections import PolyCollection

    shapes, colours = [], []
    for row, start, end, colour in bars:
        shapes.append([(start, row - 0.5), (end, row - 0.5), (end, row + 0.5), (start, row + 0.5)])
        colours.append(colour if won else (*colour, _FAINT))
    look: dict[str, Any] = (
        {"edgecolors": "white", "linewidths": 0.15} if won else {"edgecolors": "#444444", "linewidths": 0.0}
    )
    axes.add_collection(PolyCollection(shapes, facecolors=colours, hatch=None if won else "//////", **look))


def _draw_jobs(axes: Any, chart: Chart, colours: dict[int, Any]) -> None:
    for row, job in enumerate(chart.jobs):
        if job.started is None or job.finished is None:
            continue
        axes.plot([job.submitted, job.started], [row, row], color="#888888", linewidth=1.2)
        axes.broken_barh([(job.started, job.execution)], (row - 0.4, 0.8), facecolors=[colours[job.id]])
        if job.held is not None and job.held_for:
            axes.broken_barh([(job.held[0], job.held_for)], (row - 0.17, 0.34), facecolors="black")
    axes.set_ylim(len(chart.jobs) - 0.5, -0.5)
    axes.set_xlim(0, max(job.finished or 0.0 for job in chart.jobs) * 1.01)
    axes.set_ylabel("one row per job,\nby arrival")
    axes.set_yticks([0, len(chart.jobs) - 1], ["1", str(len(chart.jobs))])
    axes.set_xlabel("time (s)")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(color="#3b7dbf", label="attempt that brought the result (colour: its job)"),
        Patch(facecolor="#3b7dbf4a", edgecolor="#444444", hatch="//////", linewidth=0, label="lost to a replica"),
        Line2D([], [], color="#888888", linewidth=1.2, label="job waits for its first start"),
        Patch(color="black", label="its last task is held"),
    ]
