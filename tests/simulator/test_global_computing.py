"""``simulate global-computing``: the paper's claims at a few seeds, scenarios right and wrong, schedulers by hand."""

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console

from loopline_shared.errors import LooplineError
from loopline_simulator.__main__ import main
from loopline_simulator.papers.global_computing import published
from loopline_simulator.papers.global_computing.comparison import QueueingSetting, compare
from loopline_simulator.papers.global_computing.files import READINGS, TABLES, merged, paper_scenarios, read_scenarios
from loopline_simulator.papers.global_computing.queueing_trial import QueueingCase, run
from loopline_simulator.papers.global_computing.schedulers import SCHEDULERS
from loopline_simulator.papers.global_computing.tables import picture
from loopline_simulator.streams import stream
from loopline_simulator.sweep import on_cores, sweep
from tests.campaign import LONG, tried

DOCS = Path(__file__).parents[2] / "docs" / "global-computing.md"


def settings(table: int, reading: str, seeds: int) -> dict[str, QueueingSetting]:
    """Compare the paper's schedulers; a quick run, which looks at how tables are printed, ends after 10 requests."""
    asked_for = paper_scenarios(table, reading)
    scenarios = asked_for if LONG else [scenario.model_copy(update={"completions": 10}) for scenario in asked_for]
    cases = [
        QueueingCase(seed, scheduler, scenario, table, reading)
        for scenario in scenarios
        for scheduler in scenario.schedulers
        for seed in range(seeds)
    ]
    return {setting.title: setting for setting in compare(sweep(run, cases, on_cores(1)))}


@pytest.fixture(scope="module")
def table_3() -> dict[str, QueueingSetting]:
    return settings(3, "fitted", tried(2, 4))


@pytest.fixture(scope="module")
def table_4() -> dict[str, QueueingSetting]:
    return settings(4, "fitted", tried(2, 6))


def over(setting: QueueingSetting, scheduler: str, base: str) -> float:
    rows = {row.scheduler: row for row in setting.rows}
    return rows[scheduler].total_over[base].mean


@pytest.mark.campaign
def test_where_networks_differ_only_who_knows_them_does_better_than_going_round(
    table_3: dict[str, QueueingSetting],
) -> None:
    assert over(table_3["homogeneous"], "LOAD", "GRR") == pytest.approx(1, abs=0.15)
    assert over(table_3["heterogeneous"], "LOAD", "GRR") > 1.3
    for scheduler in ("DWR", "DWR-seen"):
        assert over(table_3["heterogeneous"], scheduler, "GRR") < 0.6
        assert over(table_3["homogeneous"], scheduler, "GRR") == pytest.approx(1, abs=0.15)


@pytest.mark.campaign
def test_where_servers_differ_who_knows_the_load_does_better_and_networks_do_not_spoil_it(
    table_4: dict[str, QueueingSetting],
) -> None:
    assert 2 < 1 / over(table_4["heterogeneous"], "LOAD", "GRR") < 4
    assert over(table_4["homogeneous"], "LOAD", "GRR") > 1.02
    assert over(table_4["homogeneous"], "LRR", "GRR") > 1.02
    for setting in table_4.values():
        for scheduler in ("DWR", "DWR-seen"):
            assert over(setting, scheduler, "LOAD") < 1


@pytest.mark.campaign
def test_tables_3_and_4_are_near_the_papers(
    table_3: dict[str, QueueingSetting], table_4: dict[str, QueueingSetting]
) -> None:
    for setting in (table_3["homogeneous"], table_4["homogeneous"], table_4["heterogeneous"]):
        for row in setting.rows:
            share = row.times["total"].ratio
            assert (share is None) == row.scheduler.startswith("DWR")
            assert share is None or 0.75 < share.mean < 1.25, (setting.title, row.scheduler, share)


@pytest.mark.campaign
def test_tables_1_and_2_are_near_the_papers() -> None:
    for table, title in ((1, "n = 600, packets of 100 KB"), (2, "n = 600")):
        scenario = next(each for each in paper_scenarios(table, "fitted") if each.title == title)
        (setting,) = compare([run(QueueingCase(seed, "GRR", scenario, table, "fitted")) for seed in range(2)])
        for row in setting.rows[0].clients:
            for cell in (row.throughput, row.performance):
                assert cell.ratio is not None
                assert cell.ratio.mean == pytest.approx(1, abs=0.05 if table == 1 else 0.2), (row.client, cell)


def test_every_figure_of_the_paper_has_its_place() -> None:
    for table in TABLES:
        for reading in READINGS:
            scenarios = {each.title: each for each in paper_scenarios(table, reading)}
            known = {**published.RATES, **published.TIMES_OF}[table]
            for title, name in known:
                clients = [client.name for client in scenarios[title].clients]
                assert name in (clients if table < 3 else scenarios[title].schedulers)
            assert all(scenario.assumptions for scenario in scenarios.values())
    for times in published.TIMES_OF.values():
        for communication, computing, total, *_ in times.values():
            assert communication + computing == pytest.approx(total, abs=0.002)


def test_output_fits_into_100_columns(
    table_3: dict[str, QueueingSetting], table_4: dict[str, QueueingSetting]
) -> None:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(picture([*table_3.values(), *table_4.values()]))
    printed = console.export_text()
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 100
    assert "…" not in printed
    for word in (
        "Table 3 (fitted), poisson traffic: heterogeneous",
        "DWR-seen",
        "109",
        "over LOAD ±",
        "· going round",
    ):
        assert word in printed


# Schedulers, by hand


@dataclass
class FakeServer:
    speed: float
    jobs: int = 0
    unfinished_s: float = 0.0


@dataclass
class FakeGrid:
    servers: list[FakeServer]
    first_server: int = 0
    work: float = 100.0
    transfers_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    seen_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    promises_s: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def computing_s(self, client: int, server: int) -> float:
        return self.work / self.servers[server].speed

    def promised_s(self, server: int) -> float:
        return self.promises_s[server]

    def transfer_s(self, client: int, server: int) -> float:
        return self.transfers_s[server]

    def seen_transfer_s(self, client: int, server: int) -> float:
        return self.seen_s[server]


def chosen(scheduler: str, grid: FakeGrid, clients: list[int]) -> list[int]:
    one: Any = SCHEDULERS[scheduler](stream(1, "scheduler"))
    return [one.choose(client, grid) for client in clients]


def test_going_round() -> None:
    grid = FakeGrid([FakeServer(1), FakeServer(1), FakeServer(1)], first_server=1)
    assert chosen("GRR", grid, [0, 0, 1, 0, 2]) == [1, 2, 0, 1, 2]
    assert chosen("LRR", grid, [0, 0, 1, 0, 2, 1]) == [1, 2, 1, 0, 1, 2]


def test_load_counts_jobs_by_speed_and_takes_the_first_of_equals() -> None:
    assert chosen("LOAD", FakeGrid([FakeServer(400, jobs=3), FakeServer(100)]), [0]) == [0]
    assert chosen("LOAD", FakeGrid([FakeServer(400, jobs=4), FakeServer(100)]), [0]) == [1]


@pytest.mark.parametrize(
    ("scheduler", "more", "server"),
    [
        ("DWR", {}, 0),  # J / c: 1 against 2 seconds
        ("DWR", {"transfers_s": [3.0, 1.0]}, 1),
        ("DWR", {"seen_s": [3.0, 1.0]}, 0),
        ("DWR-seen", {"transfers_s": [3.0, 1.0]}, 0),
        ("DWR-seen", {"seen_s": [3.0, 1.0]}, 1),
        ("DWR", {"promises_s": [2.0, 0.0]}, 1),
        ("DWR", {"servers": [FakeServer(100, jobs=9, unfinished_s=0.5), FakeServer(50)]}, 0),
        ("DWR", {"servers": [FakeServer(100, jobs=1, unfinished_s=1.5), FakeServer(50)]}, 1),
    ],
)
def test_the_least_turnaround(scheduler: str, more: dict[str, Any], server: int) -> None:
    grid = FakeGrid(**{"servers": [FakeServer(100), FakeServer(50)], **more})
    assert chosen(scheduler, grid, [0]) == [server]


def test_equals_share_the_requests() -> None:
    share = fmean(chosen("DWR", FakeGrid([FakeServer(100), FakeServer(100)]), [0] * 1000))
    assert 0.4 < share < 0.6


# Scenario files


EXAMPLE = re.findall(r"```toml\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(EXAMPLE)
    (tmp_path / "monday.csv").write_text("time,bytes\n0,100\n60,300\n")
    return file


def test_the_scenario_in_the_docs_works(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["global-computing", "--scenario", str(file), "--processes", "1"]
    assert main([*command, "--json", "--seeds", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [setting["title"] for setting in document["settings"]] == ["few requests", "many requests"]
    assert len(document["runs"]) == 2 * 2 * len(document["settings"][0]["rows"])
    assert main([*command, "--schedulers", "GRR", "--seeds", "1"]) == 0
    assert "events per second" in capsys.readouterr().out


@pytest.mark.campaign
def test_traffic_can_be_exchanged(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"--scenario {file} --traffic self-similar poisson --trace {tmp_path / 'monday.csv'} --schedulers GRR"
    assert main(["global-computing", *words.split(), "--seeds", "1", "--json"]) == 0
    kinds = [setting["traffic"] for setting in json.loads(capsys.readouterr().out)["settings"]]
    assert list(dict.fromkeys(kinds)) == ["on-off", "poisson", "trace"]


def test_a_variant_changes_what_it_names() -> None:
    base = {"a": 1, "t": {"kind": "x", "u": 1, "v": [1]}}
    assert merged(base, {"a": 2, "t": {"v": [2]}}) == {"a": 2, "t": {"kind": "x", "u": 1, "v": [2]}}
    assert merged(base, {"t": {"kind": "y", "w": 1}}) == {"a": 1, "t": {"kind": "y", "w": 1}}
    assert base == tomllib.loads('a = 1\nt = { kind = "x", u = 1, v = [1] }')


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("speed_mops = 400", "speed = 400", "servers.0: unknown key 'speed': did you mean speed_mops?"),
        ("completions = 30", "completion = 100", "unknown key 'completion': did you mean completions?"),
        ("completions = 30", "completions = 0", "completions: has to be at least 1, got 0"),
        ('kind = "round-robin"', 'kind = "robin"', "'first-come', 'processor-sharing', 'round-robin'"),
        ('name = "slow"', "", "servers.1.name: is missing"),
        ('name = "slow"', 'name = "fast"', "two of the servers are called 'fast'"),
        ('servers = ["slow"]', 'servers = ["slo"]', "there is no server 'slo': did you mean slow?"),
        ('servers = ["slow"]', 'servers = ["fast"]', "2 networks join the site home and the server fast"),
        ('"GRR"', '"GR"', "there is no scheduler 'GR': did you mean GRR?"),
        ("throughput_kb_s = 200", "throughput_kb_s = 2000", "more than the bandwidth"),
        ("[[variants]]", "[variants]", "Cannot declare"),
        ("monday.csv", "sunday.csv", "sunday.csv: No such file"),
        ("pause_s = 2", "pause_s = ", "Invalid value"),
    ],
)
def test_bad_scenario_is_refused_with_a_hint(old: str, new: str, complaint: str, file: Path) -> None:
    assert old in EXAMPLE
    file.write_text(EXAMPLE.replace(old, new))
    with pytest.raises(LooplineError) as refused:
        read_scenarios(file)
    assert complaint in f"{refused.value.message} {refused.value.hint}"
    assert str(file.parent) in refused.value.message


def test_variants_are_tables(file: Path) -> None:
    file.write_text("variants = []")
    with pytest.raises(LooplineError, match="variants are tables") as refused:
        read_scenarios(file)
    assert "[[variants]]" in refused.value.hint


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--schedulers LAOD", "did you mean LOAD?"),
        ("--tables 5", "5"),
        ("--readings tex", "tex"),
        ("--scenario none.toml", "none.toml: No such file"),
        ("--scenario none.toml --tables 3", "either --tables"),
        ("--trace none.csv", "none.csv: No such file"),
    ],
)
def test_bad_options_are_refused_plainly(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["global-computing", *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert complaint in captured.err
    assert "Traceback" not in captured.err
