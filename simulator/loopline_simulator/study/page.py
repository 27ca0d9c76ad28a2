"""The study's page: Markdown, with a picture for each section."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

from loopline_shared import __version__
from loopline_simulator.experiments.tables import number, plain
from loopline_simulator.statistics import Estimate
from loopline_simulator.study.answers import KeptAnswer
from loopline_simulator.study.section import Place, Section, Shown


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a study: its command, and seconds of this computer's time."""

    command: str
    _: KW_ONLY
    answers: Sequence[KeptAnswer]
    computed: int  # runs of this time, as the others were kept from before
    took_s: float
    processes: int
    code: str


def page(sections: Sequence[Section], pictures: Sequence[Path], effort: Effort) -> str:
    """Return the page; ``pictures`` are one for each section, beside the page or below it."""
    lines = [*_head(effort), *_contents(sections)]
    for section, picture in zip(sections, pictures, strict=True):
        lines += [
            "",
            f"## {section.title}",
            "",
            f"{section.text} {_seeds(section)}",
            "",
            f"![{section.title}]({picture.as_posix()})",
        ]
        for shown in section.shown:
            lines += ["", *_table(section, shown)]
        lines += _ratios(section)
    return "\n".join(lines) + "\n"


def _head(effort: Effort) -> Iterator[str]:
    yield "# The study: Loopline's policies and the field's"
    yield ""
    cpu_s = sum(answer.cpu_s for answer in effort.answers)
    yield (
        f"This page was written by `{effort.command}`: Loopline {__version__}, code {effort.code}, Python "
        f"{platform.python_version()} on {platform.machine()}. {len(effort.answers):,} runs, {cpu_s / 60:.1f} "
        f"minutes of CPU time. {effort.computed:,} of them were run this time, in {effort.took_s / 60:.1f} minutes "
        f"in {effort.processes} processes; the others were kept from before{_by_earlier_code(effort)}."
    )
    yield ""
    yield (
        "Everything is simulated: the computers and their owners. What schedules them is the master's own scheduler. "
        "A figure is the mean over the seeds, ± half of its 95 % interval (Student's t). Ratios are paired by seed. "
        "Total time: from a job's submission to its end. Slowdown: total time over the least that the job needs "
        "alone, at mean speeds. *hold*, *deliver*, *none*: [the order guarantee](../docs/guarantee.md)."
    )


def _by_earlier_code(effort: Effort) -> str:
    count = sum(answer.code != effort.code for answer in effort.answers)
    return f", {count:,} of them by earlier code that gives the same figures with the first seed" if count else ""


def _seeds(section: Section) -> str:
    first, last = section.seeds[0], section.seeds[-1]
    return f"Seeds {first} to {last}." if last > first else f"Seed {first}."


def _contents(sections: Sequence[Section]) -> Iterator[str]:
    yield ""
    for section in sections:
        anchor = "".join(sign for sign in section.title.lower().replace(" ", "-") if sign.isalnum() or sign == "-")
        yield f"- [{section.title}](#{anchor})"


def _table(section: Section, shown: Shown) -> Iterator[str]:
    yield f"**{_capitalised(shown.title)}**"
    yield ""
    yield from _rows(section, section.rows, lambda place: _figure(section, place, shown))


def _ratios(section: Section) -> Iterator[str]:
    others = [row for row in section.rows if row != section.base]
    for shown in section.compared:
        yield ""
        yield f"**{_capitalised(shown.title)} over that of `{section.base}`, on the same seeds**"
        yield ""
        yield from _rows(section, others, partial(_ratio_over_base, section, shown.figure))
    if section.base_column:
        yield ""
        yield f"**Mean total time over that of {section.base_column}, on the same seeds**"
        yield ""
        yield from _rows(section, section.rows, lambda place: _ratio(section.over_column(place)))


def _rows(section: Section, rows: Sequence[str], cell: object) -> Iterator[str]:
    yield f"| | {' | '.join(section.columns)} |"
    yield f"| --- |{' ---: |' * len(section.columns)}"
    for row in rows:
        cells = [cell((row, column)) for column in section.columns]  # type: ignore[operator]
        if any(cells):
            yield f"| {row} | {' | '.join(cells)} |"


def _figure(section: Section, place: Place, shown: Shown) -> str:
    if shown.is_sum:
        values = section.values(place, shown.figure)
        return f"{sum(values):,.0f}" if values else ""
    value = section.estimate(place, shown.figure)
    if value is None:
        return ""
    if shown.as_share:
        return f"{value.mean:.1%} ±{100 * value.half_width:.1f}"
    return f"{number(value.mean)} ±{number(value.half_width)}"


def _ratio_over_base(section: Section, figure: str, place: Place) -> str:
    return _ratio(section.over_base(place, figure))


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _ratio(value: Estimate | None) -> str:
    return "" if value is None else f"{value.mean:.2f} ±{plain(value.half_width)}"
