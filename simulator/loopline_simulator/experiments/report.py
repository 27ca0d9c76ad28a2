"""``loopline simulate report``: the whole study, as a page with tables and pictures."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.console import Console

from loopline_simulator.experiments.answers import publish
from loopline_simulator.experiments.options import Count, Positive, Several, SweepOptions, usage
from loopline_simulator.progress import progress_bar
from loopline_simulator.study import bars
from loopline_simulator.study.answers import KeptAnswer, KeptAnswers, answer, code
from loopline_simulator.study.page import Effort, page
from loopline_simulator.study.section import Section
from loopline_simulator.study.sections import sections
from loopline_simulator.sweep import available_cores, sweep


@Parameter(name="*", group=Group("Runs", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class StudyRuns(SweepOptions):
    """Sweep options; by default three seeds, which were not used for tuning any policy."""

    seeds: Count = 3
    first_seed: Annotated[int, Parameter(validator=Number(gte=1, lte=10**9))] = 301


def report(
    file: Path | None = None,
    *,
    swf: Annotated[tuple[Path, ...], Several] = (),
    resample: bool = False,
    only: Annotated[tuple[str, ...], Several] = (),
    minutes: Positive | None = None,
    runs: StudyRuns = StudyRuns(),
) -> int:
    """Write the whole study as a page: policies of the literature, recorded and random work, churn, bounds.

    Three seeds take some minutes on two cores, a hundred some hours.

    Parameters
    ----------
    file
        The page to write, in Markdown; pictures go into a folder `pictures` beside it (default: a page called study,
        in the folder of --out).
    swf
        Workloads in the Standard Workload Format; each has a section of its own.
    resample
        With --swf: draw each log's users with replacement for each seed, in place of windows, which are not
        independent.
    only
        Sections to run, by their keys.
    minutes
        Begin no further seed after this many minutes. The page is written from the seeds that are done; with
        `--keep`, the next call continues. Answers of earlier code are used where this code gives the same with the
        first seed.
    """
    known_sections = sections(swf, resample=resample)
    chosen = [section for section in known_sections if not only or section.key in only]
    strange = set(only) - {section.key for section in known_sections}
    if strange:
        known = ", ".join(section.key for section in known_sections)
        raise usage(f"there is no section {min(strange)!r}", f"there are {known}; `log` needs --swf")
    began, kept = time.monotonic(), KeptAnswers(runs.keep, runs.first_seed)
    computed = _run(chosen, runs, kept, began + 60.0 * minutes if minutes else None)
    used = [answer for section in chosen for answer in _gather(section, runs, kept)]
    took_s = time.monotonic() - began
    publish(runs, _document(chosen), None)
    if (runs.json or runs.csv) and runs.out is None:
        return 0
    effort = Effort(
        " ".join(["loopline simulate report", *_told(sys.argv)]),
        answers=list({answer.case: answer for answer in used}.values()),
        computed=computed,
        took_s=took_s,
        processes=_processes(runs),
        code=code(),
    )
    _write(file or (runs.out or Path()) / "study.md", chosen, effort)
    return 0


def _run(chosen: Sequence[Section], runs: SweepOptions, kept: KeptAnswers, until: float | None) -> int:
    """Run what is not kept, the first seed first; return the number of runs.

    Past ``until``, on the monotonic clock, no further seed begins; the first one always runs.
    """
    first, *others = runs.seed_numbers
    computed = _run_seeds([first], chosen, runs, kept)
    for seeds in [others] if until is None else [[seed] for seed in others]:
        if until is None or time.monotonic() < until:
            computed += _run_seeds(seeds, chosen, runs, kept)
    return computed


def _run_seeds(seeds: Sequence[int], chosen: Sequence[Section], runs: SweepOptions, kept: KeptAnswers) -> int:
    asked = {section.key: section.different(runs.seed_numbers) for section in chosen}
    cases = dict.fromkeys(
        case
        for section in chosen
        for _, case in section.items([seed for seed in seeds if seed in asked[section.key]])
    )
    missing = [case for case in cases if kept.get(case) is None]
    with progress_bar("runs", len(missing)) as shown:

        def came(found: Any) -> None:
            kept.add(found)
            shown(found)

        sweep(answer, missing, runs.executor(), came)
    return len(missing)


def _gather(section: Section, runs: SweepOptions, kept: KeptAnswers) -> Iterator[KeptAnswer]:
    """Give the section the answers of each seed once all of that seed are there; yield them."""
    for seed in section.different(runs.seed_numbers):
        found = [(place, kept.get(case)) for place, case in section.items([seed])]
        if found and all(answer is not None for _, answer in found):
            section.seeds.append(seed)
            for place, one in found:
                assert one is not None, "all are there"
                section.answers.setdefault(place, []).append(one.figures)
                yield one


def _processes(runs: SweepOptions) -> int:
    return runs.processes or available_cores()


def _told(words: Sequence[str]) -> Sequence[str]:
    """Return the command's own options as they were typed, files by their names alone."""
    own = words[words.index("report") + 1 :] if "report" in words else []
    return [Path(word).name if "/" in word else word for word in own]


def _document(chosen: Sequence[Section]) -> dict[str, Any]:
    tables = {
        section.key: [
            {"row": row, "column": column, "runs": runs_, "over_base": _estimated(section, (row, column))}
            for (row, column), runs_ in section.answers.items()
        ]
        for section in chosen
    }
    seeds = sorted({seed for section in chosen for seed in section.seeds})
    return {
        "experiment": "report",
        "code": code(),
        "seeds": seeds,
        "sections": tables,
        "runs": [run for section in chosen for run in _tidy(section)],
    }


def _tidy(section: Section) -> Iterator[dict[str, Any]]:
    for (row, column), answers in section.answers.items():
        for seed, figures in zip(section.seeds, answers, strict=True):
            yield {"section": section.key, "row": row, "column": column, "seed": seed, **figures}


def _estimated(section: Section, place: tuple[str, str]) -> dict[str, float] | None:
    found = section.over_base(place)
    return None if found is None else asdict(found)


def _write(out: Path, chosen: Sequence[Section], effort: Effort) -> None:
    console = Console(stderr=True, highlight=False)
    files = [bars.draw(section, out.parent / "pictures") for section in chosen]
    pictures = [file.relative_to(out.parent) for drawn in files for file in drawn if file.suffix == ".svg"]
    out.write_text(page(chosen, pictures, effort), "utf-8")
    console.print(f"wrote {out} and {len(pictures)} pictures", style="dim", markup=False)
