"""A Gantt chart in text: a row for each slot of each worker, a bar for each attempt, a colour for each job.

Without colour, a job is a letter: a capital for an attempt whose result counts, a small letter for any other. A bar
begins with its task's number, after a ``+`` if the attempt was a replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, count, groupby

from rich.text import Text

from loopline_shared.rest.bodies import AttemptView

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


def draw(attempts: Iterable[AttemptView], names: Mapping[int, str], now: float, columns: int, colour: bool) -> Text:
    """Return the chart with its axis and legend, ``columns`` wide; ``names`` are the names of the jobs."""
    rows = _rows(attempts, now)
    if not rows:
        return Text("nothing has been run yet")
    margin = max(len(label) for label, _ in rows) + 1
    scale = _scale(rows, now, max(20, columns - margin))
    style = _Style(colour, {job: place for place, job in enumerate(sorted(names))})
    chart = [Text(f"{label:<{margin}}").append_text(_row(row, scale, style, now)) for label, row in rows]
    return Text("\n").join([*chart, Text(" " * margin + _axis(scale)), Text(), _legend(names, style)])


SlotRow = tuple[str, list[AttemptView]]


def _rows(attempts: Iterable[AttemptView], now: float) -> list[SlotRow]:
    """Return the attempts that have begun, by worker and slot; two that overlap in time were on two slots."""
    rows: list[SlotRow] = []
    begun = (a for a in attempts if a.started_at is not None or not (a.waiting or a.ended_at))
    by_worker = sorted(begun, key=lambda attempt: (attempt.worker, _begin(attempt), attempt.id))
    for worker, group in groupby(by_worker, key=lambda attempt: attempt.worker):
        slots: list[list[AttemptView]] = []
        for attempt in group:
            slot = _free(slots, attempt, now)
            if slot is None:
                slots.append(slot := [])
            slot.append(attempt)
        rows += [(f"{worker} {number}", slot) for number, slot in enumerate(slots, 1)]
    return rows


def _free(slots: list[list[AttemptView]], attempt: AttemptView, now: float) -> list[AttemptView] | None:
    """Return the slot that the attempt began on; None if all were taken.

    One that ended before it is best; else one that had to be free by then, by its run time: its result came late.
    """
    begin = _begin(attempt) + _TOLD_LATE_S
    for left in (_end, _had_run):
        for slot in slots:
            if left(slot[-1], now) <= begin:
                return slot
    return None


def _had_run(attempt: AttemptView, now: float) -> float:
    """Return when it had run for as long as it ran, if it began when it is said to."""
    return min(_end(attempt, now), _begin(attempt) + attempt.wall_s) if attempt.wall_s else _end(attempt, now)


def _begin(attempt: AttemptView) -> float:
    return attempt.dispatched_at if attempt.started_at is None else attempt.started_at


def _end(attempt: AttemptView, now: float) -> float:
    return now if attempt.ended_at is None else attempt.ended_at


def _scale(rows: list[SlotRow], now: float, columns: int) -> _Scale:
    attempts = [attempt for _, row in rows for attempt in row]
    start = min(_begin(attempt) for attempt in attempts)
    return _Scale(start, max(1.0, max(_end(attempt, now) for attempt in attempts) - start), columns)


def _row(row: list[AttemptView], scale: _Scale, style: _Style, now: float) -> Text:
    """Return a row of bars. A bar takes at least one column, or is left out if that column is taken."""
    line = Text()
    for attempt, after in zip(row, [*row[1:], None], strict=True):
        last = _end(attempt, now) if after is None else min(_end(attempt, now), _begin(after))
        start = max(len(line), scale.column(_begin(attempt)))
        end = min(scale.columns, max(scale.column(_begin(attempt)) + 1, scale.column(last)))
        if start < end:
            line.append(" " * (start - len(line))).append_text(style.bar(attempt, end - start))
    return line


@dataclass(frozen=True, slots=True)
class _Style:
    """Style of bars: in colour, or in letters."""

    colour: bool
    places: Mapping[int, int]  # index of each job among those drawn

    def bar(self, attempt: AttemptView, columns: int) -> Text:
        counts = attempt.accepted or attempt.ended_at is None
        label = f"{'+' if attempt.replica else ''}{attempt.id.task}"
        room = columns - len(label)
        return self.paint(attempt.id.job, counts, (label if room >= 0 else ""), columns)

    def paint(self, job: int, counts: bool, label: str, columns: int) -> Text:
        place = self.places.get(job, 0)
        if not self.colour:
            letter = chr(ord("A") + place % 26)
            return Text(label.ljust(columns, letter if counts else letter.lower()))
        hue = _COLOURS[place % len(_COLOURS)]
        return Text(label.ljust(columns, " " if counts else "░"), f"black on {hue}" if counts else f"{hue} dim")


def _axis(scale: _Scale) -> str:
    """Return the axis, with marks at round times: ``|0s      |5s      |10s``."""
    wanted_s = _TICK_COLUMNS * scale.span_s / scale.columns
    steps_s = chain(_STEPS_S, (86400 * 2**power for power in count()))
    step_s = next(step_s for step_s in steps_s if step_s >= wanted_s)
    length_s, unit = next(unit for unit in _UNITS if step_s % unit[0] == 0)
    line = ""
    for mark in range(0, int(scale.span_s) + 1, step_s):
        label, column = f"|{mark // length_s}{unit}", scale.column(scale.start + mark)
        if column + len(label) <= scale.columns:
            line = line.ljust(column) + label
    return line


def _legend(names: Mapping[int, str], style: _Style) -> Text:
    jobs = (style.paint(job, True, "", 2).append(f" job {job} {name}", "none") for job, name in sorted(names.items()))
    replica = style.paint(min(names), True, "+7", 4).append(" replica of task 7", "none")
    beaten = style.paint(min(names), False, "", 4).append(" does not count: beaten, failed or lost", "none")
    return Text("   ").join([*jobs, replica, beaten])
