"""Workloads and machines that others wrote. The files here are generated in the formats: none is from an archive."""

import gzip
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline_shared.errors import LooplineError
from loopline_shared.model import Order
from loopline_simulator.__main__ import main
from loopline_simulator.fast.availability import Absence, Interval, alternating, merged
from loopline_simulator.fast.machines import Park
from loopline_simulator.traces import run as run_of_trace
from loopline_simulator.traces.intervals import read_machines
from loopline_simulator.traces.swf import Selection, SizeFrom, SwfJob, TasksFrom, arrivals, read_jobs

numbers = st.floats(0, 1e9)
maybe = st.none() | numbers
counts = st.none() | st.integers(1, 10_000)
jobs = st.builds(
    SwfJob,
    number=st.integers(1, 10**6),
    submitted=numbers,
    wait=maybe,
    run_time=maybe,
    processors=counts,
    average_cpu=maybe,
    requested_processors=counts,
    requested_time=maybe,
    status=st.none() | st.integers(0, 5),
    user=st.none() | st.integers(0, 100),
)

LINE = "7 100 5 60 4 50 -1 8 120 -1 1 3 1 -1 1 -1 -1 -1"


@given(st.lists(jobs, max_size=5))
def test_written_log_is_read_back(written):
    lines = ["; Version: 2.2", "", *map(line_of, written)]
    assert all(len(line.split()) == 18 for line in lines[2:])
    assert list(read_jobs(lines)) == written


@given(st.text(st.characters(exclude_characters="\n\r", codec="utf-8")))
def test_no_line_is_more_than_a_job_or_an_error_with_its_number(line):
    try:
        message, count = "line 3", len(list(read_jobs(["; a comment", LINE, line])))
    except LooplineError as error:
        message, count = error.message, 1
    assert "line 3" in message
    assert count in (1, 2)


@pytest.mark.parametrize(
    "line",
    [
        "  7\t100  5 60 4 50 -1 8 120 -1 1 3 1 -1 1 -1 -1 -1  ; a comment behind it",
        "7 100 5 60 4 50 -1 8 120 -1 1 3",  # fields are missing at the end
        LINE + " 99 99",  # and too many
        "7 100.0 5.0 60 4.0 50 -1 8 120 -1 1 3 1 -1 1 -1 -1 -1",
    ],
)
def test_it_is_tolerant_where_the_format_is_loose(line):
    assert list(read_jobs([line])) == list(read_jobs([LINE]))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("7 100 5 60", "at least 5"),
        ("7 x 5 60 4", "field 2 is not a number: 'x'"),
        ("7 nan 5 60 4", "field 2 is not a number"),
        ("7 -1 5 60 4", "field 2, the time of submission"),
        ("7 100 5 60 4e9", "field 5 is not a number of processors"),
    ],
)
def test_invalid_job_is_an_error_with_its_line(line, what):
    with pytest.raises(LooplineError, match="line 2 is not a job") as raised:
        list(read_jobs([LINE, line]))
    assert what in raised.value.message


def chosen(lines, **options):
    return [(a.at, a.spec.task_count, a.spec.size) for a in arrivals(read_jobs(lines), Selection(**options))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (100.0, 4, 240.0)),
        ({"tasks_from": TasksFrom.REQUESTED}, (100.0, 8, 480.0)),
        ({"tasks_from": TasksFrom.ONE}, (100.0, 1, 240.0)),
        ({"size_from": SizeFrom.CPU_TIME}, (100.0, 4, 200.0)),
        ({"size_from": SizeFrom.REQUESTED_TIME}, (100.0, 4, 480.0)),
        ({"since": 40.0}, (60.0, 4, 240.0)),
        ({"since": 40.0, "stretch": 0.5}, (30.0, 4, 240.0)),
    ],
)
def test_fields_become_tasks_and_sizes(options, expected):
    assert chosen([LINE], **options) == [expected]


def test_window_first_jobs_and_jobs_that_could_never_run():
    lines = [f"{n} {n * 10} -1 {0 if n == 3 else 60} {-1 if n == 4 else 2}" for n in range(1, 9)]
    assert [at for at, _, _ in chosen(lines)] == [10, 20, 50, 60, 70, 80]
    assert [at for at, _, _ in chosen(lines, first=3)] == [10, 20, 50]
    assert [at for at, _, _ in chosen(lines, since=20, until=60)] == [0, 30]


def test_a_long_file_is_read_as_far_as_it_is_needed():
    endless = (LINE for _ in iter(int, 1))
    assert len(chosen(endless, first=5)) == 5


# --- machines -----------------------------------------------------------------------------------------------

stays = st.lists(
    st.tuples(numbers, numbers).map(lambda ends: Interval(*sorted(ends))).filter(lambda i: i.start < i.end),
    min_size=1,
)


@given(st.dictionaries(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), stays, min_size=1))
def test_intervals_that_are_written_are_read_again(written):
    machines = read_machines(lines_of(written))
    assert {name: machine.stays for name, machine in machines.items()} == {n: merged(i) for n, i in written.items()}


@pytest.mark.parametrize(
    "lines",
    [
        ["ant,0,10", "ant,20,30"],
        ["# a comment", "end,start,host", "10,0,ant", "", "30,20,ant"],
        ["host,start,end,speed", "ant,0,10,", "ant,20,30,"],
        ["ant,2026-05-01T12:00:00,2026-05-01T12:00:10", "ant,2026-05-01T12:00:20Z,2026-05-01 14:00:30+02:00"],
        ["ant,20,30", "ant,0,5", "ant,4,10"],
    ],
)
def test_columns_in_any_order_seconds_or_dates(lines):
    (machine,) = read_machines(lines).values()
    assert machine.stays == [Interval(0.0, 10.0), Interval(20.0, 30.0)]
    assert machine.speed is None


def test_a_speed_for_each_interval():
    machine = read_machines(["ant,0,10,2", "ant,20,inf,4"])["ant"]
    assert machine.stays[-1].end == math.inf
    assert machine.speed.work_between(5.0, 10.0) == 10.0
    assert machine.speed.end_of(25.0, 8.0) == 27.0


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("ant,5", "the end is missing"),
        ("ant,10,5", "ends (5) before it starts (10)"),
        ("ant,soon,5", "'soon' is neither seconds nor a time"),
        ("a nt,0,5", "not a name for a host"),
        ("ant,0,5,-2", "'-2' is not a speed"),
        ("ant,nan,5", "is not a time"),
        ("ant,2026-05-01,7", "not in the same kind of time"),
        ("ant,2026-05-01,2026-05-02", "the same in all lines"),
    ],
)
def test_invalid_interval_is_an_error_with_its_line(line, what):
    with pytest.raises(LooplineError, match="line 3 is not an interval") as raised:
        read_machines(["host,start,end,speed", "bee,0,5", line])
    assert what in raised.value.message


def test_columns_that_are_not_all_named_and_a_file_without_any():
    with pytest.raises(LooplineError, match=r"line 1 .* none is end"):
        read_machines(["host,start", "ant,0"])
    with pytest.raises(LooplineError, match="no intervals"):
        read_machines(["host,start,end"])


# --- the experiment -----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    lines = ["; generated", *(f"{n} {n * 15} -1 {30 + n * 7 % 50} {1 + n % 6}" for n in range(1, 41))]
    (tmp_path / "a.swf").write_text("\n".join(lines))
    with gzip.open(tmp_path / "a.swf.gz", "wt") as packed:
        packed.write("\n".join(lines))
    machines = [f"pc-{n},{n * 3 + 400 * k},{n * 3 + 400 * k + 350}" for n in range(6) for k in range(30)]
    (tmp_path / "pcs.csv").write_text("\n".join(machines))
    return tmp_path


def simulate(capsys, *words):
    code = main(["trace", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.campaign
def test_policies_beside_one_another(files, capsys):
    words = ["--swf", files / "a.swf", "--pcs", 3, "--patterns", "steady", "--processes", 1]
    code, out, _ = simulate(capsys, *words)
    assert code == 0
    assert "40 jobs on 3 machines" in out
    assert "round-robin" in out
    assert "first-come" in out
    _, text, _ = simulate(capsys, *words, "--json")
    runs = json.loads(text)["runs"]
    assert all(run["unfinished"] == 0 and run["passed"] == 0 for run in runs)
    by_policy = {run["policy"]: run["waiting"]["mean"] for run in runs}
    assert by_policy["round-robin"] < by_policy["first-come"]
    words[1] = files / "a.swf.gz"
    assert json.loads(simulate(capsys, *words, "--json")[1])["runs"] == runs


def test_machines_that_come_and_go_cost_computing(files, capsys):
    words = ["--swf", files / "a.swf", "--policies", "first-come", "--processes", 1, "--json", "--order", "none"]
    words += ["--availability", files / "pcs.csv", "--lease", 20, "--patterns", "steady"]
    lost = {}
    for absence in ("loses", "sleeps", "works"):
        code, out, _ = simulate(capsys, *words, "--absence", absence)
        assert code == 0
        (run,) = json.loads(out)["runs"]
        assert run["unfinished"] == 0
        lost[absence] = run["lost_time"]
    assert lost["loses"] > 0


@pytest.mark.parametrize("absence", ["loses", "sleeps"])
def test_pcs_that_come_and_go_at_random(files, capsys, absence):
    words = ["--swf", files / "a.swf", "--policies", "first-come", "--processes", 1, "--json", "--patterns", "steady"]
    words += ["--pcs", 9, "--lease", 20, "--absence", absence]
    (steady,) = json.loads(simulate(capsys, *words)[1])["runs"]
    (run,) = json.loads(simulate(capsys, *words, "--stay", 200, "--away", 50)[1])["runs"]
    assert (run["unfinished"], run["passed"], steady["lost_time"]) == (0, 0, 0)
    assert run["total"]["mean"] > steady["total"]["mean"]
    assert run["lost_time"] > 0


@pytest.mark.parametrize("absence", [Absence.LOSES, Absence.WORKS])
def test_stays_are_drawn_as_the_run_comes_to_them(files, monkeypatch, absence):
    drawn = []

    def noted(*laws):
        for stay in alternating(*laws):
            drawn.append(stay)
            yield stay

    monkeypatch.setattr(run_of_trace, "alternating", noted)
    park = Park(3, patterns=())
    case = run_of_trace.TraceCase(
        1,
        "first-come",
        Order.NONE,
        swf=files / "a.swf",
        selection=Selection(),
        park=park,
        absence=absence,
        stay_s=200.0,
    )
    answer = run_of_trace.run(case)
    assert answer.measures.unfinished == 0
    assert 3 <= len(drawn) < 3 * answer.measures.makespan / 100, "and not all that the longest run could need"


def test_owners_who_sit_down_at_their_machines(files, capsys):
    words = ["--swf", files / "a.swf", "--policies", "first-come", "--processes", 1, "--json", "--order", "none"]
    words += ["--availability", files / "pcs.csv", "--absence", "works", "--patterns", "steady"]
    (files / "owners.csv").write_text("\n".join(f"pc-{n},100,1000" for n in range(6)))
    totals = []
    for share in (1, 0.5, 0):
        out = simulate(capsys, *words, "--presence", files / "owners.csv", "--share", share)[1]
        totals.append(json.loads(out)["runs"][0]["total"]["mean"])
    assert totals[0] == json.loads(simulate(capsys, *words)[1])["runs"][0]["total"]["mean"]
    assert totals[0] < totals[1] < totals[2]
    (files / "owners.csv").write_text("pc-99,0,10\n")
    code, _, err = simulate(capsys, *words, "--presence", files / "owners.csv")
    assert (code, "there is no host pc-99" in err) == (1, True)


def test_mistake_is_reported_with_file_and_line(files, capsys):
    (files / "bad.swf").write_text("; fine\n1 2 3\n")
    code, _, err = simulate(capsys, "--swf", files / "bad.swf")
    assert (code, "bad.swf: line 2" in err.replace("\n", "")) == (1, True)
    code, _, err = simulate(capsys, "--swf", files / "none.swf")
    assert (code, "cannot be read" in err) == (1, True)
    (files / "bad.swf.gz").write_bytes(gzip.compress(b"1 2 3 4 5\n" * 9999)[:-20])
    assert "cannot be read" in simulate(capsys, "--swf", files / "bad.swf.gz")[2]
    code, _, err = simulate(capsys, "--swf", files / "a.swf", "--policies", "first-com")
    assert (code, "did you mean first-come?" in err) == (2, True)
    code, _, err = simulate(capsys, "--swf", files / "a.swf", "--since", "1e6")
    assert (code, "no job in it is chosen" in err) == (1, True)
    (files / "short.csv").write_text("pc-1,0,3\n")
    code, _, err = simulate(capsys, "--swf", files / "a.swf", "--availability", files / "short.csv", "--processes", 1)
    assert (code, "no job finished" in err) == (1, True)


def line_of(job):
    """Return the job's line in the format; unknown fields are -1."""
    known = (
        job.number,
        job.submitted,
        job.wait,
        job.run_time,
        job.processors,
        job.average_cpu,
        None,
        job.requested_processors,
        job.requested_time,
        None,
        job.status,
        job.user,
    )
    fields = [*known, *([None] * (18 - len(known)))]
    return " ".join("-1" if value is None else f"{value:.17g}" for value in fields)


def lines_of(machines):
    rows = [f"{host},{stay.start!r},{stay.end!r}" for host, stays in machines.items() for stay in stays]
    return ["host,start,end", *rows]
