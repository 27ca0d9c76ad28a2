"""The job database (docs/design/dynamic-load.md): past runs of a user's program, and a prediction of the next.

A program is known by its owner, the name of its jobs and the folder that they are submitted from, as in the paper. A
window of its latest runs is kept. The prediction is the median of the last few runs. Their number (32, 8, 3 or 1) is
the one that would have predicted past runs best. (Wolski's Network Weather Service chooses among its forecasters in
this way: many runs if a program only scatters, few if it drifts.) The errors of those past predictions give the
spread. A change of a program is distinguished from scatter by several runs in a row outside the spread: then the
window starts again with these runs.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from operator import truediv

from loopline_master.core.kernel.entities import Program
from loopline_master.core.kernel.runs import LEAST_SHARE, Observation
from loopline_shared.model import Prediction

WINDOW = 32
"""Number of runs kept."""
NEWS_EVERY_S = 0.1
"""Minimum seconds between runs used for learning, once the window is full and the program unchanged."""
_LAST = (32, 8, 3, 1)
"""Numbers of runs whose median may be the prediction ..."""
_CLEARLY = 0.9
"""... a smaller number only if its error would have been less by this factor."""
_BELIEVED = 4
"""Number of strange runs in a row that count as a change."""
_ENOUGH = 5
"""Minimum number of runs to recognise a strange one."""
_SURELY = math.floor(0.9 * (_ENOUGH - 1))
"""Place in ascending order of work: the 0.9 quantile of any ``_ENOUGH`` runs is no less than the run there."""
_MARGIN = 1.5
_DOUBT = 4.0
"""Factor by which the next run may be larger or smaller than a single known run; with n runs, the n-th root of it
beyond their spread."""
_FAR = 4.0
"""A run is far slower than others' if it seems to have done this many times the work of nine in ten of theirs."""
_SAME = 1.25
"""Jobs of one program keep the size of the last until the prediction differs from it by this factor."""
_LEAST, _MOST = 1e-6, 1e9
_QUARTERS, _NEARLY = 4, 0.05
"""The share that a run wants is counted in quarters, like owners' spare shares; a smaller excess is not counted."""


def learn(program: Program, seen: Observation) -> None:
    """Learn from a successful run of the program."""
    is_strange = _is_strange(*_ordered(program), seen)
    program.strange = program.strange + 1 if is_strange else 0
    gone = program.window[: max(0, len(program.window) + 1 - WINDOW)]
    if program.strange >= _BELIEVED:
        gone, program.strange = program.window[: 1 - program.strange], 0
        program.changed_at = seen.at
    program.window = (*program.window[len(gone) :], seen)
    program.predicted, program.reference, program.wanted = None, None, None
    program.runs, program.used_at = program.runs + 1, seen.at
    program.works = _moved(program.works, [run.work for run in gone], seen.work)
    program.wholes = _moved(program.wholes, [run.work / run.share for run in gone], seen.work / seen.share)


def is_news(program: Program, now: float) -> bool:
    """True if a run that has ended now will be used for learning.

    Of many runs in a short time the first is enough, once the window is full: it should show the program's history,
    not one moment.
    """
    if len(program.window) < WINDOW:
        return True
    since_s = now - program.window[-1].at
    return since_s > 0 if program.strange else since_s >= NEWS_EVERY_S


def predict(program: Program) -> Prediction | None:
    """Return the prediction for the program's next task; None if it never ran."""
    if program.predicted is None and program.window:
        program.predicted = _predict_next(program)
    return program.predicted


def _predict_next(program: Program) -> Prediction:
    works = _works(program)
    last, ratios = _best_last(works)
    expected = _median(sorted(works[-last:]))
    ratios = sorted(ratios) or [1.0]
    low, high = quantile(ratios, 0.1), quantile(ratios, 0.9)
    doubt = _doubt(len(works))
    below, above = bisect_left(ratios, low), bisect_right(ratios, high)
    mean = sum([low] * below + ratios[below:above] + [high] * (len(ratios) - above)) / len(ratios)
    return Prediction(
        work=expected,
        mean=_within(expected * mean),
        p10=_within(expected * min(1.0, low) / doubt),
        p90=_within(expected * max(1.0, high) * doubt),
        runs=len(works),
    )


def expected_work(program: Program, size: float | None) -> float | None:
    """Return the work that a run should have done, judged by the program's other runs; None if these show nothing.

    They show nothing while all were on one worker. A given size counts relative to those of other runs, and only if
    runs scatter clearly less by size: if sizes are meaningless or wrong, only the time is used.
    """
    if program.reference is None:
        program.reference = _reference(program)
    by_size, by_run = program.reference
    return (by_size * size if by_size and size else by_run) or None


def log_unit(program: Program) -> float:
    """Return the logarithm of the work that a unit of the sizes given to the program's runs was worth; 0: unknown."""
    rates = _rates(program)
    return math.log(_within(_median(rates))) if rates else 0.0


def share_wanted(program: Program | None, slots: int) -> float:
    """Return the share of its slots that an undisturbed run of the program uses, in quarters.

    At least one quarter, and all of them if no run shows it. A run that had a small part of its wanted share, on a
    fully used computer, shows as little as one that waited there of its own accord.
    """
    if program is None:
        return 1.0
    if program.wanted is None:
        telling = [run for run in program.window if run.share > LEAST_SHARE and run.wall_s > 0]
        had_s = sum(run.wall_s * run.share for run in telling)
        program.wanted = min(_MOST, sum(run.cpu_s for run in telling) / had_s) if had_s else _MOST
    return min(1.0, max(1, math.ceil(_QUARTERS * program.wanted / slots - _NEARLY)) / _QUARTERS)


def _reference(program: Program) -> tuple[float, float]:
    """Return the median work of a run by its size, and of any run; 0 for a median that is not used."""
    window = program.window
    if not any(run.worker != window[-1].worker for run in window):
        return 0.0, 0.0
    dones, rates = sorted([run.done or run.work for run in window]), _rates(program)
    if len(rates) == len(dones) and _scatter(rates) < _CLEARLY * _scatter(dones):
        return _within(_median(rates)), 0.0
    return 0.0, _within(_median(dones))


def _rates(program: Program) -> list[float]:
    """Return the work that runs did for each unit of their size, in ascending order.

    It is based on the believed speeds of workers.
    """
    return sorted([(run.done or run.work) / run.size for run in program.window if run.size])


def task_size(program: Program, predicted: Prediction) -> float:
    """Return the size of one task for comparisons of jobs' sizes.

    It stays the same as for the last job while that is about right: equal jobs of one program are then of equal size,
    and may not pass one another, however their predictions scatter.
    """
    last = program.recorded
    if last is None or not last / _SAME < predicted.mean < last * _SAME:
        program.recorded = predicted.mean
    return program.recorded if program.recorded is not None else predicted.mean


def is_usual(program: Program, work: float) -> bool:
    """True if this amount of work is so ordinary that its worker cannot have been far slower. Cheap, and usual."""
    return len(program.works) < _ENOUGH or work <= _FAR * program.works[_SURELY]


def most_by_others(program: Program, seen: Observation) -> float:
    """Return the upper bound of a run's work by other workers' runs, if it seems to be above that.

    Infinity otherwise, and if others' runs do not show it. A run of a larger given size may take as much longer.
    """
    if is_usual(program, seen.work):
        return math.inf
    others = [run for run in _familiar(program) if run.worker != seen.worker]
    strange = program.window[len(program.window) - program.strange :]
    if len(others) < _ENOUGH or any(run.worker != seen.worker for run in strange):
        return math.inf
    shared, whole = sorted(run.work for run in others), sorted(map(_whole, others))
    most, most_whole = _FAR * quantile(shared, 0.9), _FAR * quantile(whole, 0.9)
    if seen.size and (rates := sorted(run.work / run.size for run in others if run.size)):
        most = max(most, _FAR * quantile(rates, 0.9) * seen.size)
    return most if seen.work > most and _whole(seen) > most_whole else math.inf


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile, interpolated between the two nearest values."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _works(program: Program) -> list[float]:
    """Return the work of the program's runs, calculated in the way that scatters less.

    With the share of the processor that each had, for programs that compute and are slowed down by owners; or without
    it, for programs that wait and are not.
    """
    if _scatter(program.works) < _CLEARLY * _scatter(program.wholes):
        works = [run.work for run in program.window]
    else:
        works = [run.work / run.share for run in program.window]
    if min(works) >= _LEAST and max(works) <= _MOST:
        return works  # the usual case
    return [_within(work) for work in works]


def _whole(run: Observation) -> float:
    return run.work / run.share


def _scatter(ordered: Sequence[float]) -> float:
    return math.log(_within(quantile(ordered, 0.9)) / _within(quantile(ordered, 0.1)))


def _familiar(program: Program) -> Sequence[Observation]:
    """Return the program's runs without strange ones at the end, which may begin a change."""
    return program.window[: len(program.window) - program.strange]


def _moved(ordered: Sequence[float], gone: Iterable[float], come: float) -> list[float]:
    """Return a new list, because copies of the program share the old one."""
    moved = [*ordered]
    for one in gone:
        del moved[bisect_left(moved, one)]
    insort(moved, come)
    return moved


def _ordered(program: Program) -> tuple[Sequence[float], Sequence[float]]:
    """Return the work of familiar runs with and without their share of the processor, each in ascending order."""
    if not program.strange:
        return program.works, program.wholes
    known = _familiar(program)
    return sorted(run.work for run in known), sorted(map(_whole, known))


def _is_strange(works: Sequence[float], wholes: Sequence[float], seen: Observation) -> bool:
    """True if a run is unlike these by work and by whole work."""
    if len(works) < _ENOUGH:
        return False
    margin = _MARGIN * _doubt(len(works))
    return not _is_within(works, seen.work, margin) and not _is_within(wholes, _whole(seen), margin)


def _is_within(ordered: Sequence[float], work: float, margin: float) -> bool:
    tenth = (len(ordered) - 1) // 10 + 1
    if ordered[tenth] / margin <= work <= ordered[-1 - tenth] * margin:
        return True  # by far, the usual case
    return quantile(ordered, 0.1) / margin <= work <= quantile(ordered, 0.9) * margin


def _doubt(runs: int) -> float:
    return float(_DOUBT ** (1 / runs))


def _best_last(works: Sequence[float]) -> tuple[int, list[float]]:
    """Return the number of last runs that would have predicted best, and the ratios of runs to those predictions."""
    best, chosen, least = _LAST[0], list[float](), math.inf
    growing, nexts = _medians_so_far(works[:-1]), works[1:]
    for last in _LAST:
        medians = [*growing[: last - 1], *_moving_medians(works, last)]
        ratios = list(map(truediv, nexts, medians))
        error = sum(map(abs, map(math.log, ratios)))
        if error < _CLEARLY * least:
            best, chosen, least = last, ratios, error
    return best, chosen


def _medians_so_far(works: Sequence[float]) -> list[float]:
    """Return for each run the median of it and of all before it."""
    medians, before = [], list[float]()
    for at, work in enumerate(works):
        insort(before, work)
        low = before[at >> 1]
        medians.append(low + (before[(at >> 1) + 1] - low) * 0.5 if at & 1 else low)
    return medians


def _moving_medians(works: Sequence[float], last: int) -> Sequence[float]:
    """Return the medians of ``last`` runs in a row, of all rows that another run follows."""
    if last == 1:
        return works[:-1]
    rows, half = [sorted(works[at : at + last]) for at in range(len(works) - last)], last // 2
    if last % 2:
        return [row[half] for row in rows]
    return [row[half - 1] + (row[half] - row[half - 1]) * 0.5 for row in rows]


def _median(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return ordered[half - 1] + (ordered[half] - ordered[half - 1]) * 0.5


def _within(work: float) -> float:
    return min(_MOST, max(_LEAST, work))
