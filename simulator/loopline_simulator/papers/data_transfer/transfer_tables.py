"""Results as tables: strategies beside the planner and the bounds, searches beside the order that they begin with,
and rounds beside a live master.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from loopline_simulator.experiments.tables import bare_table, number, plain
from loopline_simulator.papers.data_transfer.assignment_trial import SEARCHES, SEARCHING, AssignmentAnswer
from loopline_simulator.papers.data_transfer.rounds_trial import RoundsAnswer
from loopline_simulator.papers.data_transfer.transfer_trial import TransferAnswer
from loopline_simulator.statistics import Estimate, estimate, ratio


def picture(answers: Sequence[TransferAnswer]) -> RenderableType:
    """Return the comparison of the strategies with the first one."""
    scenario, names = answers[0].case.scenario, list(dict.fromkeys(answer.case.strategy for answer in answers))
    table = bare_table(
        f"[bold]{scenario.files} files of {scenario.size_mb:g} MB to {scenario.hosts} hosts[/] "
        f"[dim]({scenario.switches} switches, {scenario.copies} copies beside the master's)[/]"
    )
    table.add_column("", no_wrap=True)
    for title in ("last s ±", "x", "x bound", "mean s ±", "x ±", "uplinks GB", "master GB", "first", "ms"):
        table.add_column(title, justify="right")
    by_name = {name: [answer for answer in answers if answer.case.strategy == name] for name in names}
    for name in names:
        table.add_row(Text(name, "bold cyan"), *_row(by_name[name], by_name[names[0]]))
    return Group(table, Text(), _legend(names[0]))


def _row(ours: Sequence[TransferAnswer], base: Sequence[TransferAnswer]) -> list[str]:
    found = {name: [getattr(answer.measures, name) for answer in ours] for name in ("makespan_s", "mean_s")}
    than = {name: [getattr(answer.measures, name) for answer in base] for name in ("makespan_s", "mean_s")}
    last, mean = estimate(found["makespan_s"]), estimate(found["mean_s"])
    slower = ratio(found["mean_s"], than["mean_s"])
    measures = [answer.measures for answer in ours]
    return [
        _with_width(last),
        f"{ratio(found['makespan_s'], than['makespan_s']).mean:.2f}",
        f"{fmean(each.makespan_s / each.least_makespan_s for each in measures):.2f}",
        _with_width(mean),
        f"{slower.mean:.2f} ±{plain(slower.half_width)}",
        number(fmean(each.uplink_gb for each in measures)),
        number(fmean(each.master_gb for each in measures)),
        f"{fmean(each.first_mbs / each.most_mbs for each in measures):.0%}" if measures[0].most_mbs else "",
        f"{1000 * fmean(answer.took_s / answer.events for answer in ours):.1f}",
    ]


def _with_width(found: Estimate) -> str:
    return f"{number(found.mean)} ±{number(found.half_width)}"


def _legend(base: str) -> Text:
    lines = [
        "last: until the last file is there; mean: from a demand until its file is there.",
        f"x: over that of {base} on the same seeds; ±: half the width of the 95 % interval over the seeds.",
        "x bound: over the time before which the links cannot have carried what they must, the mean of the seeds.",
        "uplinks: carried between switches, both directions; master: sent by it.",
        "first: throughput at the beginning over what no plan can exceed (only where all demands come at once).",
        "ms: computing time each time that the strategy is asked.",
    ]
    return Text("\n".join(lines), "dim")


def searches(answers: Sequence[AssignmentAnswer]) -> RenderableType:
    """Return what searches reach, over what the order that they begin with does."""
    plans = list(dict.fromkeys(answer.case.plans for answer in answers))
    table = bare_table("[bold]One round of tasks[/]")
    table.add_column("", no_wrap=True)
    for title in ("plans", "GB/s ±", "x ±", "last x ±", "mean x ±"):
        table.add_column(title, justify="right")
    for search in SEARCHES:
        for most in plans if search in SEARCHING else plans[:1]:
            said = str(most) if search in SEARCHING else ""
            table.add_row(Text(search, "bold cyan"), said, *_values(answers, search, most))
    lines = [
        "plans: that it may make. GB/s: throughput at which data arrives at the beginning.",
        "x: over that of local-first on the same seeds; ±: half the width of the 95 % interval.",
        "last, mean: until the last host has the data of its task, and the mean host; over local-first's.",
    ]
    return Group(table, Text(), Text("\n".join(lines), "dim"))


def _values(answers: Sequence[AssignmentAnswer], search: str, plans: int) -> list[str]:
    ours = [one for one in answers if one.case.search == search and one.case.plans == plans]
    base = [one for one in answers if one.case.search == "local-first"]
    gains = [
        ratio([getattr(one, name) for one in ours], [getattr(one, name) for one in base])
        for name in ("value", "last_s", "mean_s")
    ]
    value = estimate([one.value / 1e9 for one in ours])
    return [_with_width(value), *(f"{gain.mean:.2f} ±{plain(gain.half_width)}" for gain in gains)]


def rounds(answers: Sequence[RoundsAnswer]) -> RenderableType:
    """Return the completion times of each way, over those of a live master on the same seeds."""
    first, ratios = answers[0].case, list(dict.fromkeys(answer.case.ratio for answer in answers))
    rows = list(dict.fromkeys((answer.case.way, answer.case.trigger) for answer in answers))
    scenario, found = first.scenario, {ratio: _by_row(answers, ratio) for ratio in ratios}
    table = bare_table(
        f"[bold]{scenario.hosts * first.tasks} tasks on {scenario.hosts} hosts, each with {scenario.wants} of "
        f"{scenario.files} files of {scenario.size_mb:g} MB[/]"
    )
    for title in ("", "next round"):
        table.add_column(title, no_wrap=True)
    for each in ratios:
        for title in (f"{each:g}: last ±", "mean ±"):
            table.add_column(title, justify="right")
    for row in rows:
        cells = (_gains(found[each][row], found[each][rows[0]]) for each in ratios)
        table.add_row(Text(row[0], "bold cyan"), row[1], *(cell for pair in cells for cell in pair))
    seconds = ", ".join(
        f"{number(fmean(one.makespan_s for one in found[each][rows[0]]))} and "
        f"{number(fmean(one.mean_s for one in found[each][rows[0]]))} s at {each:g}"
        for each in ratios
    )
    lines = [
        "0.1, 1, ...: transfer time of a task's files over its computer's link alone, over its computing time.",
        f"last, mean: until the last task has ended, and each task; over {rows[0][0]}'s on the same seeds.",
        f"{rows[0][0]}: {seconds}. ±: half the width of the 95 % interval over the seeds.",
    ]
    return Group(table, Text(), Text("\n".join(lines), "dim"))


def _by_row(answers: Sequence[RoundsAnswer], ratio: float) -> dict[tuple[str, str], list[RoundsAnswer]]:
    found: dict[tuple[str, str], list[RoundsAnswer]] = {}
    for answer in answers:
        if answer.case.ratio == ratio:
            found.setdefault((answer.case.way, answer.case.trigger), []).append(answer)
    return found


def _gains(ours: Sequence[RoundsAnswer], base: Sequence[RoundsAnswer]) -> tuple[str, str]:
    last = ratio([one.makespan_s for one in ours], [one.makespan_s for one in base])
    mean = ratio([one.mean_s for one in ours], [one.mean_s for one in base])
    return f"{last.mean:.2f} ±{plain(last.half_width)}", f"{mean.mean:.2f} ±{plain(mean.half_width)}"
