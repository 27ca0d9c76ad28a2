"""A section's picture: mean total times as bars with their intervals, or against another figure."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

from loopline_simulator.drawing import save
from loopline_simulator.study.section import Section

_INCHES_WIDE, _INCHES_A_COLUMN, _INCHES_A_ROW, _INCHES_MORE = 9.0, 2.2, 0.24, 1.3
_COLOURS = ("#1b6ca8", "#e08e0b", "#3d8f5f", "#a13d63")


def draw(section: Section, folder: Path) -> list[Path]:
    """Write the section's picture; return its files."""
    figure = _figure if section.against is None else _curves
    return save(lambda: figure(section), folder / f"study-{section.key}", dpi=100)


def _curves(section: Section) -> Any:
    """Return a plane for each column: a point for each row, and a curve through rows that differ in a number only."""
    from matplotlib.figure import Figure

    assert section.against is not None
    figure = Figure(figsize=(max(_INCHES_WIDE, 3.4 * len(section.columns)), 4.2), layout="constrained")
    for axes, column in zip(figure.subplots(1, len(section.columns), squeeze=False)[0], section.columns, strict=True):
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in section.rows:
            found = [section.estimate((row, column), name) for name in (section.against.figure, "total")]
            name, x, y = row.rstrip("0123456789. "), *(each.mean if each else 0.0 for each in found)
            curves.setdefault(name, []).append((x, y))
            axes.annotate(row[len(name) :], (x, y), xytext=(3, 3), textcoords="offset points", fontsize=7)
        for (name, points), colour, marker in zip(curves.items(), cycle(_COLOURS), cycle("os^Dv"), strict=False):
            axes.plot(*zip(*points, strict=True), marker=marker, color=colour, linewidth=1.0, label=name, alpha=0.8)
        axes.set_title(column, fontsize=10)
        axes.set_xlabel(section.against.title, fontsize=8)
        axes.set_ylabel("mean total time, s", fontsize=8)
        axes.margins(0.2)
        axes.tick_params(labelsize=8)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(curves), fontsize=8)
    figure.suptitle(f"{section.title}: mean total time against {section.against.title}", fontsize=10)
    return figure


def _figure(section: Section) -> Any:
    from matplotlib.figure import Figure

    rows, columns = section.rows, section.columns
    height = _INCHES_MORE + _INCHES_A_ROW * len(rows)
    width = max(_INCHES_WIDE, _INCHES_A_COLUMN * len(columns))
    figure = Figure(figsize=(width, height), layout="constrained")
    for axes, column, colour in zip(
        figure.subplots(1, len(columns), sharey=True, squeeze=False)[0], columns, cycle(_COLOURS), strict=False
    ):
        found = [section.estimate((row, column), "total") for row in rows]
        axes.barh(
            range(len(rows)),
            [each.mean if each else 0.0 for each in found],
            xerr=[each.half_width if each else 0.0 for each in found],
            color=colour,
            error_kw={"elinewidth": 1.0, "capsize": 2.0},
        )
        axes.set_title(column, fontsize=10)
        axes.set_xlabel("s", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_yticks(range(len(rows)), rows)
        axes.invert_yaxis() if not axes.yaxis_inverted() else None
    figure.suptitle(f"{section.title}: mean total time, with 95 % intervals", fontsize=10)
    return figure
