"""``simulate no-passing``: the paper's tables at a few seeds, the output, and refused arguments."""

import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from rich.console import Console

from loopline_shared.model import Order
from loopline_simulator.__main__ import main
from loopline_simulator.experiments import EXPERIMENTS, paper, tables
from loopline_simulator.experiments.comparison import PolicyComparison, compare
from loopline_simulator.experiments.no_passing import default_policies, is_as_in_paper
from loopline_simulator.experiments.options import read_pattern
from loopline_simulator.fast.machines import PATTERN_1, Park
from loopline_simulator.fast.trial import Case, run
from loopline_simulator.fast.workload import Workload
from loopline_simulator.sweep import on_cores, sweep
from tests.campaign import LONG, tried

SEEDS = (3, 4)
JOBS = tried(6, 32)
"""The paper's number; in a quick run fewer, which are enough to check the printed table."""


@pytest.fixture(scope="module")
def table_5() -> PolicyComparison:
    workload = Workload(JOBS, interval=200.0)
    cases = [
        Case(seed, policy, paper.order_of(policy), workload, Park()) for seed in SEEDS for policy in paper.POLICIES
    ]
    assert is_as_in_paper(cases[0]) == LONG
    (comparison,) = compare(sweep(run, cases, on_cores(None if LONG else 1)), as_in_paper=True)
    return comparison


@pytest.mark.campaign
def test_table_5_is_near_the_papers(table_5: PolicyComparison) -> None:
    assert (table_5.table, table_5.interval) == (5, 200.0)
    for row in table_5.rows:
        for time in ("execution", "total"):
            share = row.means[time].ratio
            assert share is not None
            assert 0.85 < share.mean < 1.2, (row.policy, time, share)
    by_policy = {row.policy: row for row in table_5.rows}
    assert by_policy["round-robin"].passed == 0 < by_policy["round-robin"].passable
    assert by_policy["first-come"].passed > 0
    assert by_policy["space-partition"].passed > 0
    assert 0.1 < by_policy["round-robin"].lost_work.mean < 0.25
    assert by_policy["first-come"].lost_time.mean == by_policy["space-partition"].lost_time.mean == 0.0
    assert by_policy["round-robin"].total_to_base is not None
    assert by_policy["round-robin"].total_to_base.mean > 1.4


TOTALS = {
    ("fair", Order.HOLD): 1093.7165611619023,
    ("fair", Order.NONE): 1039.7480049512444,
    ("round-robin", Order.HOLD): 1577.3274401906772,
    ("round-robin", Order.NONE): 1559.176253119364,
    ("first-come", Order.HOLD): 1682.5861301321645,
    ("first-come", Order.NONE): 1264.3160121295846,
    ("space-partition", Order.HOLD): 1820.90428196041,
    ("space-partition", Order.NONE): 1824.823529477269,
}
"""Mean total times in seconds, recorded on 29 November 2026 before sizes were stamped and jobs delivered in order."""


@pytest.mark.parametrize(("policy", "order"), TOTALS)
def test_figures_of_the_papers_workload_are_the_same_in_every_digit(policy: str, order: Order) -> None:
    workload = Workload(jobs=10, tasks=64, interval=100.0)
    measures = run(Case(2, policy, order, workload, Park(64))).measures
    assert measures.total.mean == TOTALS[policy, order]


def test_output_fits_into_100_columns(table_5: PolicyComparison) -> None:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(tables.picture([table_5]))
    printed = console.export_text()
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 100
    assert "…" not in printed
    for word in ("Table 5", "space-partition", "1685", "98.2k", "passable"):
        assert word in printed


def test_more_runs_at_once_change_nothing() -> None:
    cases = [Case(seed, "round-robin", Order.HOLD, Workload(jobs=6, tasks=9), Park(count=8)) for seed in (3, 4)]
    assert sweep(run, cases, partial(ThreadPoolExecutor, 4)) == [run(case) for case in cases]


def test_the_papers_figures_are_complete() -> None:
    assert set(paper.MEASURED) == {(i, policy) for i in paper.TABLE_OF_INTERVAL for policy in paper.POLICIES}
    for times in paper.MEASURED.values():
        assert times["waiting"].mean + times["execution"].mean == pytest.approx(times["total"].mean, abs=0.02)


def test_only_the_papers_own_setting_is_set_beside_it() -> None:
    case = Case(1, "first-come", Order.NONE, Workload(interval=50.0), Park(fit=1.0))
    assert is_as_in_paper(case)
    for other in (Workload(jobs=31), Workload(smallest=1.0)):
        assert not is_as_in_paper(Case(1, "first-come", Order.NONE, other, Park()))
    assert not is_as_in_paper(Case(1, "first-come", Order.NONE, Workload(), Park(count=127)))


def test_every_experiment_is_where_the_registry_says() -> None:
    for path, summary in EXPERIMENTS.values():
        module, name = path.split(":")
        assert callable(getattr(importlib.import_module(module), name))
        assert summary.endswith((".", "?"))


SMALL = "no-passing --jobs 3 --tasks 4 --pcs 3 --processes 1"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--load 0.5 0.9 --arrivals poisson --sizes lognormal --decades 1", 2),
        ("--intervals 10 --sizes log-uniform --order hold --fit 1", 1),
        ("--peaks 1 5 --patterns 0.1/0.2/0.9-1/0-0.5 --smallest 1 --largest 1", 3),
        ("--patterns steady --policies first-come", 3),
    ],
)
def test_options_beyond_the_paper(words: str, expected: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL.split(), *words.split(), "--seeds", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["comparisons"]) == expected
    assert all(comparison["table"] is None for comparison in document["comparisons"])
    assert {run["seed"] for run in document["runs"]} == {1, 2}
    if "hold" in words:
        assert all(run["passed"] == 0 and run["order"] == "hold" for run in document["runs"])
    if "--load" in words:
        assert [round(comparison["load"], 6) for comparison in document["comparisons"]] == [0.9, 0.5]


def test_output_names_the_fit_and_the_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL.split(), "--seeds", "1"]) == 0
    printed = capsys.readouterr().out
    assert "speeds x 0.95 (fitted" in printed
    assert "events per second" in printed
    assert all(policy in printed for policy in default_policies())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--policies first-com", "did you mean first-come?"),
        ("--seeds 0", ">= 1"),
        ("--intervals 0", "> 0"),
        ("--smallest 9 --largest 8", "smallest task (9) is larger than the largest (8)"),
        ("--patterns 3", "'3' is not a pattern"),
        ("--patterns 0/1/1-1/0-0", "probabilities"),
        ("--patterns 1/1/0-0/0-1", "never get anything done"),
        ("--sizes huge", "huge"),
        ("--dask x --processes 2", "either on --processes"),
        ("--seds 3", "--seeds"),
    ],
)
def test_bad_input_is_refused_plainly(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-passing", *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert complaint in captured.err
    assert "Traceback" not in captured.err


def test_an_unknown_experiment_and_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-pasing", "--json"]) == 2
    assert "did you mean `loopline simulate no-passing`?" in json.loads(capsys.readouterr().err)["error"]["hint"]
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in EXPERIMENTS)


def test_a_pattern_is_read_as_it_is_written() -> None:
    assert read_pattern("0.001/0.01/0.95-1/0-0.05") == read_pattern("1") == PATTERN_1


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith("loopline_simulator.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main(["no-passing"]) == 1
    assert "pip install 'loopline[sim]'" in capsys.readouterr().err
