"""A Gantt chart in text: a row for each slot of each worker, a bar for each attempt, a colour for each job.

Without colour, a job is a letter: a capital for an attempt whose result counts, a small letter for any other. A row
is the slot that its worker says; attempts of workers that do not say it are packed. What never began has no row. A
bar begins with its task's number, after a ``+`` if the attempt was a replica. A planned gang is hatched, after a
``<`` if its start has moved forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby

from rich.text import Text

from loopline_shared.rest.bodies import AttemptView, WaitingPlan

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
_STEPS_S = [n * unit_s for unit_s in (1, 60) for n in (1, 2, 5, 10, 15, 30)] + [n * 3600 for n in (1, 2, 4, 6, 12)]
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_TICK_COLUMNS = 9  # fewest between two marks of the axis


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps moments to columns."""

    start: float
    span_s: float
    columns: int

    def column(self, moment: float) -> int:
        return round((moment - self.start) / self.span_s * self.columns)


_TOLD_LATE_S = 0.1
"""Seconds by which attempts on one slot may overlap: reports are no more exact."""


@dataclass(frozen=True, slots=True)
class _Bar:
    """Bar of a row, from one moment to another; the end of a plan is by the gang's limit."""

    worker: str
    job: int
    start: float
    end: float
    label: str
    free_by: float  # when its slot had to be free again, by its run time: its result may have come later
    slot: int | None = None  # as its worker says
    counts: bool = True
    is_planned: bool = False


def draw(
    attempts: Iterable[AttemptView],
    names: Mapping[int, str],
    now: float,
    columns: int,
    colour: bool,
    plans: Sequence[WaitingPlan] = (),
) -> Text:
    """Return the chart with its axis and legend, ``columns`` wide; ``names`` are the names of the jobs."""
    bars = [_attempt(one, now) for one in attempts if one.started_at is not None]
    bars += [bar for one in plans for bar in _planned(one, now)]
    rows = _rows(bars)
    if not rows:
        return Text("nothing has been run yet")
    margin = max(len(label) for label, _ in rows) + 1
    since = min([bar.start for bar in bars] + ([now] if plans else []))
    scale = _Scale(since, max(1.0, max(bar.end for bar in bars) - since), max(20, columns - margin))
    style = _Style(colour, {job: place for place, job in enumerate(sorted(names))})
    chart = [Text(f"{label:<{margin}}").append_text(_row(row, scale, style)) for label, row in rows]
    axis = _axis(scale, now if plans else None)
    return Text("\n").join([*chart, Text(" " * margin + axis), Text(), _legend(names, style, bool(plans))])


def _attempt(one: AttemptView, now: float) -> _Bar:
    begin = one.started_at or one.dispatched_at
    end = now if one.ended_at is None else one.ended_at
    if one.phases:
        end = min(end, begin + one.phases.ended_s)
    label = f"{'+' if one.replica else ''}{one.id.task}"
    counts = one.accepted or one.ended_at is None
    free_by = min(end, begin + one.wall_s) if one.wall_s else end
    worker, job, slot = one.worker, one.id.job, one.slot
    return _Bar(worker=worker, job=job, start=begin, end=end, label=label, free_by=free_by, slot=slot, counts=counts)


def _planned(one: WaitingPlan, now: float) -> list[_Bar]:
    """Return a bar on each worker of a plan that has a start."""
    if one.start_at is None:
        return []
    start = max(now, one.start_at)
    label = f"{'<' if one.moves else ''}{one.task}"
    end = start + one.limit_s
    return [
        _Bar(worker=name, job=one.job, start=start, end=end, label=label, free_by=end, is_planned=True)
        for name in one.machines
    ]


SlotRow = tuple[str, list[_Bar]]


def _rows(bars: Iterable[_Bar]) -> list[SlotRow]:
    """Return the bars by worker and slot; where a worker does not say slots, two that overlap are on two."""
    rows: list[SlotRow] = []
    by_worker = sorted(bars, key=lambda bar: (bar.worker, bar.start))
    for worker, group in groupby(by_worker, key=lambda bar: bar.worker):
        slots: dict[int, list[_Bar]] = {}
        for bar in group:
            slots.setdefault(bar.slot or _free(slots, bar), []).append(bar)
        rows += [(f"{worker} {number}", slots[number]) for number in sorted(slots)]
    return rows


def _free(slots: Mapping[int, list[_Bar]], bar: _Bar) -> int:
    """Return the slot that the attempt began on, as far as times tell; a new one if all were taken.

    One that ended before it is best; else one that had to be free by then, by its run time: its result came late.
    """
    begin = bar.start + _TOLD_LATE_S
    by_end = (number for number in sorted(slots) if slots[number][-1].end <= begin)
    by_run_time = (number for number in sorted(slots) if slots[number][-1].free_by <= begin)
    return next(chain(by_end, by_run_time), max(slots, default=0) + 1)


def _row(row: list[_Bar], scale: _Scale, style: _Style) -> Text:
    """Return a row of bars. A bar takes at least one column, or is left out if that column is taken."""
    line = Text()
    for bar, after in zip(row, [*row[1:], None], strict=True):
        ends = bar.end if after is None else min(bar.end, after.start)
        start = max(len(line), scale.column(bar.start))
        end = min(scale.columns, max(scale.column(bar.start) + 1, scale.column(ends)))
        if start < end:
            line.append(" " * (start - len(line))).append_text(style.bar(bar, end - start))
    return line


@dataclass(frozen=True, slots=True)
class _Style:
    """Style of bars: in colour, or in letters."""

    colour: bool
    places: Mapping[int, int]  # index of each job among those drawn

    def bar(self, bar: _Bar, columns: int) -> Text:
        label = bar.label if columns >= len(bar.label) else ""
        return (
            self.hatched(bar.job, label, columns)
            if bar.is_planned
            else self.paint(bar.job, bar.counts, label, columns)
        )

    def paint(self, job: int, counts: bool, label: str, columns: int) -> Text:
        if not self.colour:
            letter = self._letter(job)
            return Text(label.ljust(columns, letter if counts else letter.lower()))
        hue = self._hue(job)
        return Text(label.ljust(columns, " " if counts else "░"), f"black on {hue}" if counts else f"{hue} dim")

    def hatched(self, job: int, label: str, columns: int) -> Text:
        """Return the bar of a plan."""
        if not self.colour:
            return Text(label + (self._letter(job) + "/" * columns)[: columns - len(label)])
        return Text(label.ljust(columns, "╱"), self._hue(job))

    def _letter(self, job: int) -> str:
        return chr(ord("A") + self.places.get(job, 0) % 26)

    def _hue(self, job: int) -> str:
        return _COLOURS[self.places.get(job, 0) % len(_COLOURS)]


def _axis(scale: _Scale, now: float | None) -> str:
    """Return the axis, with marks at round times: ``|0s      |5s      |10s``; and at the present, if wanted."""
    wanted_s = _TICK_COLUMNS * scale.span_s / scale.columns
    steps_s = chain(_STEPS_S, (86400 * 2**power for power in count()))
    step_s = next(step_s for step_s in steps_s if step_s >= wanted_s)
    length_s, unit = next(unit for unit in _UNITS if step_s % unit[0] == 0)
    line = ""
    for mark in range(0, int(scale.span_s) + 1, step_s):
        label, column = f"|{mark // length_s}{unit}", scale.column(scale.start + mark)
        if column + len(label) <= scale.columns:
            line = line.ljust(column) + label
    if now is not None:
        column = min(scale.columns - 1, scale.column(now))
        line = line.ljust(column)
        line = line[:column] + "^now"[: scale.columns - column] + line[column + 4 :]
    return line


def _legend(names: Mapping[int, str], style: _Style, has_plans: bool) -> Text:
    jobs = (style.paint(job, True, "", 2).append(f" job {job} {name}", "none") for job, name in sorted(names.items()))
    replica = style.paint(min(names), True, "+7", 4).append(" replica of task 7", "none")
    beaten = style.paint(min(names), False, "", 4).append(" does not count: beaten, failed or lost", "none")
    planned = style.hatched(min(names), "<", 4).append(" planned for so long, moved forward", "none")
    return Text("   ").join([*jobs, replica, beaten, *([planned] if has_plans else [])])
