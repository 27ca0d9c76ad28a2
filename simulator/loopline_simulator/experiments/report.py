"""``loopline simulate report``: the whole study, as a page with tables and pictures."""

from __future__ import annotations

import json as json_format
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.console import Console

from loopline_simulator.experiments.answers import without_nan
from loopline_simulator.experiments.options import Count, Several, SweepOptions, usage
from loopline_simulator.progress import cpu_seconds, progress_bar
from loopline_simulator.study import bars
from loopline_simulator.study.answers import KeptAnswers, answer, code
from loopline_simulator.study.page import Effort, page
from loopline_simulator.study.section import Section
from loopline_simulator.study.sections import cases_of, sections
from loopline_simulator.sweep import available_cores, sweep


@Parameter(name="*", group=Group("Runs", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class StudyRuns(SweepOptions):
    """Sweep options; by default three seeds, which were not used for tuning any policy."""

    seeds: Count = 3
    first_seed: Annotated[int, Parameter(validator=Number(gte=1, lte=10**9))] = 301


def report(
    out: Path = Path("study.md"),
    *,
    swf: Path | None = None,
    keep: Path | None = None,
    only: Annotated[tuple[str, ...], Several] = (),
    runs: StudyRuns = StudyRuns(),
) -> int:
    """Write the whole study as a page: policies of the literature, recorded and drawn work, churn, bounds.

    Three seeds take some minutes on two cores, a hundred some hours.

    Parameters
    ----------
    out
        The page to write, in Markdown; pictures go into a folder `pictures` beside it.
    swf
        A workload in the Standard Workload Format, for the section of a recorded log, which is left out without it.
    keep
        File in which answers are kept: a study that was interrupted, or is to have more seeds, goes on from there.
    only
        Sections to run, by their keys.
    """
    chosen = [section for section in sections(swf) if not only or section.key in only]
    strange = set(only) - {section.key for section in sections(swf)}
    if strange:
        known = ", ".join(section.key for section in sections(swf))
        raise usage(f"there is no section {min(strange)!r}", f"there are {known}; `log` needs --swf")
    began, kept = time.monotonic(), KeptAnswers(keep)
    computed = _run(chosen, runs, kept)
    took_s = time.monotonic() - began
    if runs.json:
        print(json_format.dumps(_document(chosen, runs), indent=1))
        return 0
    count = sum(len(section.cases) for section in chosen) * runs.seeds
    command = " ".join(["loopline simulate report", *_told(sys.argv)])
    effort = Effort(
        command,
        runs.seed_numbers,
        count,
        computed=computed,
        took_s=took_s,
        cpu_s=cpu_seconds(),
        processes=_processes(runs),
        code=code(),
    )
    _write(out, chosen, effort)
    return 0


def _run(chosen: Sequence[Section], runs: SweepOptions, kept: KeptAnswers) -> int:
    """Run what is not kept, and give every section its answers; return the number of runs."""
    asked = list(cases_of(list(chosen), runs.seed_numbers))
    missing = [case for _, _, case in asked if kept.get(case) is None]
    with progress_bar("runs", len(missing)) as shown:

        def came(found: Any) -> None:
            kept.add(found)
            shown(found)

        sweep(answer, missing, runs.executor(), came)
    for section, place, case in asked:
        figures = kept.get(case)
        assert figures is not None, "every case was run"
        section.answers.setdefault(place, []).append(figures)
    return len(missing)


def _processes(runs: SweepOptions) -> int:
    return runs.processes or available_cores()


def _told(words: Sequence[str]) -> Sequence[str]:
    """Return the command's own options as they were typed, files by their names alone."""
    own = words[words.index("report") + 1 :] if "report" in words else []
    return [Path(word).name if "/" in word else word for word in own]


def _document(chosen: Sequence[Section], runs: SweepOptions) -> dict[str, Any]:
    tables = {
        section.key: [
            {"row": row, "column": column, "runs": runs_, "over_base": _estimated(section, (row, column))}
            for (row, column), runs_ in section.answers.items()
        ]
        for section in chosen
    }
    seeds = list(runs.seed_numbers)
    return dict(without_nan({"experiment": "report", "code": code(), "seeds": seeds, "sections": tables}))


def _estimated(section: Section, place: tuple[str, str]) -> dict[str, float] | None:
    found = section.over_base(place)
    return None if found is None else asdict(found)


def _write(out: Path, chosen: Sequence[Section], effort: Effort) -> None:
    console = Console(stderr=True, highlight=False)
    pictures = [bars.draw(section, out.parent / "pictures").relative_to(out.parent) for section in chosen]
    out.write_text(page(chosen, pictures, effort), "utf-8")
    console.print(f"wrote {out} and {len(pictures)} pictures", style="dim", markup=False)
