"""A section's picture: mean total times as bars, with their intervals."""

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
    return save(lambda: _figure(section), folder / f"study-{section.key}", dpi=100)


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
