"""The study: its bounds, its sections, and the page that ``loopline simulate report`` writes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_shared.errors import LooplineError
from loopline_shared.model import Order
from loopline_simulator.__main__ import main
from loopline_simulator.experiments import report
from loopline_simulator.fast.hosts import Steady
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.trial import Case, run
from loopline_simulator.fast.workload import Arrivals, Sizes, Workload
from loopline_simulator.statistics import ratio
from loopline_simulator.study.answers import KeptAnswers, answer, code
from loopline_simulator.study.bounds import Bound, BoundCase, BoundedJob, clairvoyant, fluid, mean_total
from loopline_simulator.study.section import Section, Shown, measured
from loopline_simulator.study.sections import sections

PARK, EQUAL = Park(6), Workload(5, 8, interval=150.0)
UNEQUAL = Workload(8, 6, sizes=Sizes.LOG_UNIFORM, arrivals=Arrivals.POISSON, interval=120.0)

# --- bounds ----------------------------------------------------------------------------------------------------


def test_one_machine_serves_the_job_with_the_least_left() -> None:
    """A job of 10 is interrupted by one of 2, and not by one of 9 that comes when 7 are left."""
    jobs = [BoundedJob(0.0, [10.0]), BoundedJob(1.0, [2.0]), BoundedJob(5.0, [9.0])]
    assert fluid([Steady(1.0)], jobs) == pytest.approx([3.0, 12.0, 21.0], rel=1e-3)
    assert fluid([Steady(0.5), Steady(0.5)], jobs) == pytest.approx([3.0, 12.0, 21.0], rel=1e-3)


job_lists = st.lists(
    st.tuples(st.floats(0, 20), st.lists(st.floats(1, 9), min_size=1, max_size=2)), min_size=1, max_size=3
)


@settings(deadline=None, max_examples=40)
@given(job_lists, st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=1, max_size=2))
def test_no_list_schedule_beats_the_bound(listed: list[tuple[float, list[float]]], speeds: list[float]) -> None:
    jobs = [BoundedJob(*each) for each in sorted(listed)]
    least = fmean(fluid([Steady(speed) for speed in speeds], jobs))
    tasks = [(number, size) for number, job in enumerate(jobs) for size in job.sizes]
    for order in list(permutations(tasks))[:24]:
        free, ends = [0.0] * len(speeds), [0.0] * len(jobs)
        for number, size in order:
            options = [(max(free[m], jobs[number].arrival) + size / speed, m) for m, speed in enumerate(speeds)]
            end, machine = min(options)
            free[machine], ends[number] = end, max(ends[number], end)
        assert least <= fmean(ends) + 1e-3


def test_clairvoyant_schedule_keeps_the_hold() -> None:
    """The second job's last task, of 1, waits until the first job's of 9 is done."""
    jobs = [BoundedJob(0.0, [9.0]), BoundedJob(0.0, [2.0, 1.0])]
    assert clairvoyant([Steady(1.0), Steady(1.0)], jobs) == [9.0, 10.0]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_bound_is_below_the_schedule_that_knows_and_that_below_fair(seed: int) -> None:
    least, knowing = (mean_total(BoundCase(seed, bound, EQUAL, PARK)) for bound in Bound)
    assert 0 < least <= knowing
    for order in Order:
        assert least < run(Case(seed, "fair", order, EQUAL, PARK)).measures.total.mean
    assert knowing < run(Case(seed, "fair", Order.HOLD, EQUAL, PARK)).measures.total.mean
    assert mean_total(BoundCase(seed, Bound.FLUID, UNEQUAL, PARK)) < (
        run(Case(seed, "fair", Order.NONE, UNEQUAL, PARK)).measures.total.mean
    )


# --- the page --------------------------------------------------------------------------------------------------


def little(swf: Path | None = None, *, resample: bool = False) -> list[Section]:
    cases = {
        (policy, column): Case(0, policy, Order.NONE, Workload(3, 4, interval=interval), PARK)
        for policy in ("fair", "first-come")
        for column, interval in (("often", 50.0), ("seldom", 500.0))
    }
    bound = {("bound", "often"): BoundCase(0, Bound.FLUID, Workload(3, 4, interval=50.0), PARK)}
    shown = (
        Shown("total", "mean total time, s"),
        Shown("lost", "lost", as_share=True),
        Shown("passed", "x", is_sum=True),
    )
    return [
        Section(
            "little",
            "A little one",
            "Small.",
            {**cases, **bound},
            base="first-come",
            base_column="often",
            shown=shown,
            compared=(Shown("total", "mean total time"), Shown("slowdown", "mean slowdown")),
        )
    ]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "sections", little)


def reported(*words: object) -> int:
    return main(["report", *map(str, words), "--seeds", "2", "--processes", "1"])


def test_a_page_with_tables_intervals_and_pictures(few: None, tmp_path: Path) -> None:
    out = tmp_path / "study.md"
    assert reported(out) == 0
    page = out.read_text("utf-8")
    picture = tmp_path / "pictures" / "study-little.svg"
    assert picture.read_text("utf-8").startswith("<?xml")
    assert "![A little one](pictures/study-little.svg)" in page
    assert "Small. Seeds 301 to 302." in page
    assert " 10 runs, " in page
    totals = {
        policy: [
            measured(Case(seed, policy, Order.NONE, Workload(3, 4, interval=50.0), PARK))["total"]
            for seed in (301, 302)
        ]
        for policy in ("fair", "first-come")
    }
    share = ratio(totals["fair"], totals["first-come"])
    last = page.index("over that of `first-come`")
    assert f"| fair | {share.mean:.2f} ±" in page[last:], "over first come, paired by seed"
    assert "**Mean slowdown over that of `first-come`, on the same seeds**" in page
    assert "| bound |" in page
    assert "over that of often, on the same seeds**\n\n| | often | seldom |" in page
    assert "| first-come | 1.00 ±.00 |" in page
    assert str(tmp_path) not in page, "no path of this machine"


def test_interrupted_study_continues(few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = tmp_path / "answers.jsonl"
    assert reported(tmp_path / "one.md", "--keep", keep) == 0
    lines = keep.read_text().splitlines()
    assert len(lines) == 10
    keep.write_text("\n".join(lines[:7]) + "\n")
    ran = []
    monkeypatch.setattr(report, "answer", lambda case: (ran.append(case), answer(case))[1])
    assert reported(tmp_path / "two.md", "--keep", keep) == 0
    assert len(ran) == 3
    tables = [
        [line for line in (tmp_path / name).read_text().splitlines() if "|" in line] for name in ("one.md", "two.md")
    ]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(("total", "is_used"), [(1.0, True), (1.001, False)])
def test_answers_of_other_code_count_where_it_gave_the_same_with_the_first_seed(
    tmp_path: Path, total: float, is_used: bool
) -> None:
    keep, first, second = tmp_path / "answers.jsonl", *(BoundCase(seed, Bound.FLUID, EQUAL, PARK) for seed in (1, 2))
    kept = KeptAnswers(keep, 1)
    for case in (first, second):
        kept.add((case, replace(answer(case)[1], figures={"total": 1.0})))
    keep.write_text(keep.read_text().replace(f'"code": "{code()}"', '"code": "other"'))
    kept = KeptAnswers(keep, 1)
    assert kept.get(first) is kept.get(second) is None, "nobody knows yet"
    kept.add((first, replace(answer(first)[1], figures={"total": total})))
    assert (kept.get(second) is not None) == is_used


def test_a_line_that_was_cut_off_is_dropped_and_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    keep, cases = tmp_path / "answers.jsonl", [BoundCase(seed, Bound.FLUID, EQUAL, PARK) for seed in (1, 2)]
    for case in cases:
        KeptAnswers(keep, 1).add(answer(case))
    keep.write_text(keep.read_text()[:-20])
    kept = KeptAnswers(keep, 1)
    assert [kept.get(case) is not None for case in cases] == [True, False]
    kept.add(answer(cases[1]))
    assert KeptAnswers(keep, 1).get(cases[1]) is not None
    for text in ("no answers", "no answers\n", '{"case": 1}\n'):
        keep.write_text(text)
        with pytest.raises(LooplineError, match="no file of answers"):
            KeptAnswers(keep, 1)
        assert keep.read_text() == text


def test_study_limited_in_minutes_runs_its_first_seed_and_continues_later(few: None, tmp_path: Path) -> None:
    out, keep = tmp_path / "study.md", tmp_path / "answers.jsonl"
    for expected in ("Seed 301.", "Seeds 301 to 302."):
        assert reported(out, "--keep", keep, *(["--minutes", "1e-6"] if expected == "Seed 301." else [])) == 0
        assert expected in out.read_text("utf-8")
    assert "5 of them were run this time" in out.read_text("utf-8")


def test_answers_as_json(few: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported("--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seeds"] == [301, 302]
    assert [len(each["runs"]) for each in document["sections"]["little"]] == [2] * 5


def test_unknown_section_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--only", "churm"]) == 2
    known = "literature, replicas, bound, churn, checkpoints, stragglers, sizes, covered, robustness, mixes, grids"
    assert known in capsys.readouterr().err


def test_every_section_has_its_base_in_every_column_and_its_own_key(tmp_path: Path) -> None:
    logs = [tmp_path / "one.swf.gz", tmp_path / "other.swf"]
    found = sections(logs)
    assert len({section.key for section in found}) == len(found)
    assert [section.title for section in found[1:3]] == ["A recorded log, one", "A recorded log, other"]
    resampled = sections(logs, resample=True)
    assert "drawn with replacement" in resampled[1].text
    for section in [*found, *resampled]:
        assert {column for row, column in section.cases if row == section.base} == set(section.columns)
        policies = {case.policy for case in section.cases.values() if isinstance(case, Case)}
        assert "fair" in policies
