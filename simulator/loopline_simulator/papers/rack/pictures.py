"""Pictures of single runs, one panel per algorithm: the rack, waits over nodes, utilisation over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_simulator.drawing import save
from loopline_simulator.papers.rack.measures import fairness, utilisation, window
from loopline_simulator.papers.rack.rack_trial import RackCase, histories_of
from loopline_simulator.papers.rack.rack_world import JobHistory
from loopline_simulator.papers.rack.tables import scenario

_DPI = 90
_FRAMES = 6
_COLOURS = ("#3b6fb6", "#d97a1f", "#3a8f5c", "#a04a9c", "#8a6d3b", "#5c5c5c")
_FREE, _GREY = "#eeeeee", "#666666"


@dataclass(frozen=True, slots=True)
class Show:
    """Contents of the pictures: one seed's jobs, as each algorithm planned them."""

    title: str
    rack: Rack
    runs: dict[str, list[JobHistory]]

    @property
    def largest_wait(self) -> int:
        return max(history.wait for histories in self.runs.values() for history in histories)

    @property
    def longest(self) -> int:
        return max(history.job.limit for histories in self.runs.values() for history in histories)

    @property
    def window(self) -> tuple[float, float]:
        return window(next(iter(self.runs.values())))


def draw(cases: Sequence[RackCase], folder: Path) -> list[Path]:
    """Draw ``frames``, ``waits`` and ``utilisation`` for each scenario at the highest load, as PNG."""
    files = []
    for used, group in groupby(cases, key=lambda case: case.used):
        show = _show(list(group), used)
        name = "log" if used is None else f"used-{100 * used:.0f}"
        for kind, figure in (("frames", _racks), ("waits", _waits), ("utilisation", _utilisations)):
            files += save(partial(figure, show), folder / f"rack-{kind}-{name}", dpi=_DPI)
    return files


def _show(cases: Sequence[RackCase], used: float | None) -> Show:
    load = max(case.workload.load or 0.0 for case in cases)
    chosen = [case for case in cases if (case.workload.load or 0.0) == load]
    at = f", load {load:g}" if load else ""
    return Show(f"{scenario(used)}{at}", chosen[0].rack, {case.algorithm: histories_of(case) for case in chosen})


def _racks(show: Show) -> Any:
    """Draw a row for each algorithm and a frame every quarter of the longest limit, from the middle of the run on."""
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 1.0 + 2.0 * len(show.runs)), layout="constrained")
    grid = figure.subplots(len(show.runs), _FRAMES, squeeze=False)
    norm = Normalize(0, max(1, show.largest_wait))
    step = max(1, show.longest // 4)
    start = round(sum(show.window) / 2)
    for (name, histories), row in zip(show.runs.items(), grid, strict=True):
        for frame, axes in enumerate(row):
            now = start + frame * step
            _draw_rack(
                axes, show.rack, [history for history in histories if history.plan.start <= now < history.end], norm
            )
            axes.set_title(f"step {now}: {_share(show.rack, histories, now):.0%} in use", fontsize=9.5, color=_GREY)
        row[0].set_ylabel(_wrapped(name), fontweight="bold")
    bar = figure.colorbar(_mappable(norm), ax=grid, shrink=0.8, aspect=30, pad=0.01)
    bar.set_label("waited (steps)")
    bar.outline.set_visible(False)
    figure.suptitle(f"Who is in the rack ({show.title})", x=0.01, ha="left", fontweight="bold")
    return figure


def _mappable(norm: Any) -> Any:
    from matplotlib.cm import ScalarMappable

    return ScalarMappable(norm, "viridis_r")


def _draw_rack(axes: Any, rack: Rack, running: Sequence[JobHistory], norm: Any) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    shapes = [Rectangle(history.plan.place, history.job.width, history.job.height) for history in running]
    colours = _mappable(norm)
    filled = PatchCollection(
        shapes, facecolors=[colours.to_rgba(history.wait) for history in running], edgecolors="white", linewidths=1.0
    )
    axes.add_collection(filled)
    axes.set_xlim(0, rack.width)
    axes.set_ylim(0, rack.height)
    axes.set_aspect("equal")
    axes.set_facecolor(_FREE)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#aaaaaa")


def _share(rack: Rack, histories: Sequence[JobHistory], now: int) -> float:
    return utilisation(histories, rack, now, now + 1)


def _waits(show: Show) -> Any:
    """Draw waits over nodes with their line, a panel for each algorithm."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 4.4), layout="constrained")
    row = figure.subplots(1, len(show.runs), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (name, histories), colour in _coloured(row, show):
        fit = fairness(histories)
        nodes, waits = [history.job.nodes for history in histories], [history.wait for history in histories]
        axes.scatter(nodes, waits, s=12, color=colour, alpha=0.45, linewidths=0)
        ends = [0, max(nodes)]
        axes.plot(ends, [fit.intercept + fit.slope * x for x in ends], color="black", linewidth=1.6)
        axes.set_title(name, loc="left", fontweight="bold", fontsize=11, color=colour)
        figures = f"correlation {fit.correlation:.2f}\nresidual {fit.residual:.1f}\nlargest wait {max(waits)}"
        axes.text(0.03, 0.97, figures, transform=axes.transAxes, va="top", fontsize=9.5, backgroundcolor="#ffffffc0")
        _plain(axes)
        axes.set_xlabel("nodes of the job")
    row[0].set_ylabel("waited (steps)")
    most = max(1, show.largest_wait)
    row[0].set_xlim(left=0)
    row[0].set_ylim(-0.02 * most, 1.25 * most)
    figure.suptitle(f"Waits over nodes ({show.title})", x=0.01, ha="left", fontweight="bold")
    return figure


def _utilisations(show: Show) -> Any:
    """Draw the share of nodes in use, averaged over the longest limit, and below the number of waiting jobs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 5.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.4, 1))
    end = max(history.end for histories in show.runs.values() for history in histories)
    times = range(0, end + 1, max(1, end // 400))
    for _, (name, histories), colour in _coloured([above] * len(show.runs), show):
        mean = utilisation(histories, show.rack, *show.window)
        above.plot(
            times, list(_smoothed(show, histories, times)), color=colour, label=f"{name}: {mean:.1%}", linewidth=1.6
        )
        below.plot(times, list(_waiting(histories, times)), color=colour, linewidth=1.6)
    for axes in (above, below):
        axes.axvspan(*show.window, color="#f4f1e6", zorder=-1, linewidth=0)
        _plain(axes)
    above.set_ylabel(f"nodes in use,\nmean over {show.longest} steps")
    above.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    above.set_ylim(0, 1.02)
    above.legend(frameon=False, loc="lower center", ncols=len(show.runs), title="mean over the shaded time")
    below.set_ylabel("jobs that wait")
    below.set_ylim(bottom=0)
    below.set_xlim(0, end)
    below.set_xlabel("time (steps)")
    figure.suptitle(f"How full the rack is ({show.title})", x=0.01, ha="left", fontweight="bold")
    return figure


def _smoothed(show: Show, histories: Sequence[JobHistory], times: Sequence[int]) -> Iterator[float]:
    for time in times:
        start, end = max(0.0, time - show.longest / 2), time + show.longest / 2
        yield utilisation(histories, show.rack, start, end)


def _waiting(histories: Sequence[JobHistory], times: Sequence[int]) -> Iterator[int]:
    for time in times:
        yield sum(history.job.arrival <= time < history.plan.start for history in histories)


def _coloured(places: Sequence[Any], show: Show) -> Iterator[tuple[Any, tuple[str, list[JobHistory]], str]]:
    colours = [_COLOURS[number % len(_COLOURS)] for number in range(len(show.runs))]
    return zip(places, show.runs.items(), colours, strict=True)


def _wrapped(name: str) -> str:
    return "\n".join(wrap(name.replace("-", "- "), 14)).replace("- ", "-")


def _plain(axes: Any) -> None:
    axes.grid(color="#e2e2e2", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
