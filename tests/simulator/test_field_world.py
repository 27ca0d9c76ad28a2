"""What the study adds to the fast world: churn by published fits, wrong sizes, windows of a log, archive traces."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.model import Order
from loopline_simulator.fast.availability import Interval
from loopline_simulator.fast.churn import CONDOR, Churn, WeibullLaw
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.trial import Case, record, run
from loopline_simulator.fast.workload import Arrivals, Sizes, Workload, misdeclared
from loopline_simulator.streams import stream
from loopline_simulator.traces.fta import read_event_trace
from loopline_simulator.traces.resampled import ResampledLog
from loopline_simulator.traces.run import load_machines
from loopline_simulator.traces.swf import Selection, arrivals, read_jobs
from loopline_simulator.traces.window import LogWindow

SMALL = Workload(6, 12, sizes=Sizes.LOG_UNIFORM, arrivals=Arrivals.POISSON, interval=300.0)
PARK = Park(9)
OFTEN = Churn(WeibullLaw(0.7, 2000.0), WeibullLaw(1.0, 600.0))


# --- churn ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [WeibullLaw(1.0, 300.0), WeibullLaw(0.7, 2000.0), CONDOR])
def test_durations_have_the_mean_of_their_law(law: WeibullLaw) -> None:
    random = stream(1, "law")
    assert fmean(law.draw(random) for _ in range(200_000)) == pytest.approx(law.mean, rel=0.03)


def test_a_condor_pools_machines_stay_for_83_minutes_in_the_mean() -> None:
    assert CONDOR.mean / 60 == pytest.approx(83.2, abs=0.1)


def test_stays_are_disjoint_and_have_their_share_of_the_time_from_the_beginning() -> None:
    there = []
    for host in range(1500):
        stays = list(islice(OFTEN.stays(5, f"h{host}"), 8))
        assert stays[0].start >= 0
        assert all(stay.end < later.start for stay, later in pairwise(stays))
        there.append(any(stay.start <= 100.0 < stay.end for stay in stays))
    assert fmean(there) == pytest.approx(OFTEN.share_there, abs=0.04)


@pytest.mark.parametrize("policy", ["fair", "first-come", "long-idle"])
def test_every_job_ends_though_machines_come_and_go(policy: str) -> None:
    case = Case(3, policy, Order.HOLD, SMALL, PARK, max_replicas=2, churn=OFTEN)
    churned = run(case).measures
    assert churned.unfinished == churned.passed == 0
    assert churned.lost_time > 0
    assert run(case).measures == churned != run(replace(case, churn=None)).measures


def test_attempts_of_a_departed_machine_move_when_the_last_lease_ends() -> None:
    """To the second: no lease is renewed until then, and no other machine counts as silent."""
    lease = Churn(OFTEN.stay, OFTEN.away, lease_s=45.0)
    recorder, _ = record(Case(3, "first-come", Order.NONE, SMALL, PARK, churn=lease), attempts=True)
    ends = {host.name: {stay.end for stay in islice(lease.stays(3, host.name), 99)} for host in PARK.hosts(3)}
    lost = [attempt for attempt in recorder.attempts if attempt.state == "lost"]
    assert lost
    for attempt in lost:
        assert any(attempt.start < end <= attempt.end for end in ends[attempt.worker])


# --- sizes that are wrong --------------------------------------------------------------------------------------


def test_wrong_sizes_change_what_is_declared_and_not_the_work() -> None:
    exact = SMALL.of(2)
    wrong = misdeclared(exact, 4.0, 2)
    assert misdeclared(exact, 1.0, 2) == exact
    factors = []
    for one, other in zip(exact, wrong, strict=True):
        declared = [task.size or 0.0 for task in other.spec.tasks or ()]
        true = [task.size for task in one.spec.tasks or ()]
        assert [size * other.scale for size in declared] == pytest.approx(true)
        factors.append(1 / other.scale)
    assert all(1 / 4 <= factor <= 4 for factor in factors)
    assert min(factors) < 1 < max(factors)


def test_first_come_does_not_mind_wrong_sizes_and_fair_does() -> None:
    def total(policy: str, by: float) -> float:
        return run(Case(2, policy, Order.NONE, SMALL, PARK, max_replicas=1, wrong_by=by)).measures.total.mean

    assert total("first-come", 8.0) == pytest.approx(total("first-come", 1.0), rel=0.1)
    assert total("fair", 8.0) != total("fair", 1.0)


def test_slowdowns_by_size_are_means_of_quarters() -> None:
    recorder, _ = record(Case(4, "fair", Order.HOLD, SMALL, PARK))
    measures = recorder.measures(PARK.capacity, PARK.fastest)
    jobs = sorted(recorder.jobs(), key=lambda job: job.size)
    slowdowns = [job.slowdown(PARK.capacity, PARK.fastest) for job in jobs]
    assert measures.slowdown_by_size == pytest.approx(
        (slowdowns[0], fmean(slowdowns[1:3]), slowdowns[3], fmean(slowdowns[4:]))
    )


# --- windows of a log --------------------------------------------------------------------------------------------

LOG = [f"{n} {n * n} -1 {60 + n} 2" for n in range(1, 26)]


@pytest.fixture
def swf(tmp_path: Path) -> Path:
    file = tmp_path / "log.swf"
    file.write_text("\n".join(LOG))
    return file


def test_each_seed_has_its_own_window_at_the_load_asked_for(swf: Path) -> None:
    window = LogWindow(swf, work_a_second=3.0, jobs=10, unit=0.5)
    first, second = window.of(1), window.of(2)
    assert [job.spec.name for job in first] == [f"swf {n}" for n in range(1, 11)]
    assert [job.spec.name for job in second] == [f"swf {n}" for n in range(11, 21)]
    assert window.of(3) == first, "the rest of the log is less than a window"
    for jobs in (first, second):
        assert jobs[0].at == 0.0
        work = sum(float(job.spec.size or 0) for job in jobs)
        assert work / jobs[-1].at == pytest.approx(3.0)
    assert first[0].spec.size == pytest.approx(61 * 2 * 0.5)
    with pytest.raises(LooplineError, match="fewer than 26 jobs"):
        LogWindow(swf, 1.0, jobs=26).of(1)


WEEK_S = 7 * 86400


@pytest.fixture
def of_users(tmp_path: Path) -> Path:
    """Three users of 20 jobs each over four weeks, one job at the same time of each day."""
    lines = [
        f"{100 * user + n} {n * 86400 + 3600 * user} 0 {60 * user} {user} -1 -1 -1 -1 -1 1 {user}"
        for user in (1, 2, 3)
        for n in range(20)
    ]
    file = tmp_path / "users.swf"
    file.write_text("\n".join(sorted(lines, key=lambda line: float(line.split()[1]))))
    return file


def test_resampled_log_has_whole_streams_of_its_users(of_users: Path) -> None:
    log = ResampledLog(of_users, work_a_second=3.0, jobs=30, unit=0.5)
    runs = [log.of(seed) for seed in range(1, 9)]
    assert log.of(1) == runs[0]
    assert len({tuple(job.spec.name for job in jobs) for jobs in runs}) == len(runs), "each seed has another sample"
    users = [Counter(int(job.spec.name.removeprefix("swf ")) // 100 for job in jobs) for jobs in runs]
    assert any(len(drawn) < 3 for drawn in users), "with replacement"
    for jobs in runs:
        assert jobs[0].at == 0.0
        assert [job.at for job in jobs] == sorted(job.at for job in jobs)
        work = sum(float(job.spec.size or 0) for job in jobs)
        assert work / jobs[-1].at == pytest.approx(3.0)


def test_resampled_jobs_keep_the_hour_of_the_week(of_users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopline_simulator.traces.resampled.at_load", lambda jobs, load: jobs)
    recorded = {f"swf {job.number}": job.submitted % WEEK_S for job in read_jobs(of_users.read_text().splitlines())}
    for seed in (1, 2, 3):
        for job in ResampledLog(of_users, 1.0, jobs=30).of(seed):
            assert job.at % WEEK_S == recorded[job.spec.name]


def test_log_of_one_user_cannot_be_resampled(swf: Path) -> None:
    with pytest.raises(LooplineError, match="fewer than two users"):
        ResampledLog(swf, 1.0, jobs=5).of(1)


def test_the_unit_changes_all_times_alike() -> None:
    plain, short = (list(arrivals(read_jobs(LOG), Selection(unit=unit))) for unit in (1.0, 0.1))
    assert [job.at * 0.1 for job in plain] == pytest.approx([job.at for job in short])
    assert [float(job.spec.size or 0) * 0.1 for job in plain] == pytest.approx(
        [float(job.spec.size or 0) for job in short]
    )


# --- the Failure Trace Archive ---------------------------------------------------------------------------------

EVENTS = """# event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time reason
1\t1\t7\t1\tlab-7\t1\t1000.5\t1060.5\tNULL
2\t1\t7\t1\tlab-7\t0\t1060.5\t1100.5\tNULL
3\t1\t7\t1\tlab-7\t1\t1100.5\t1200.5\tNULL

4\t1\t9\t1\tlab-9\t0\t1010.5\t1050.5\t-1
5\t1\t9\t1\tlab-9\t1\t1050.5\t1300.5\t-1
6\t1\t11\t1\tlab-11\t2\t1050.5\t1300.5\t-1
"""


def test_an_event_trace_is_read_as_stays_from_the_earliest_event_on(tmp_path: Path) -> None:
    file = tmp_path / "event_trace.tab"
    file.write_text(EVENTS)
    stays = {name: machine.stays for name, machine in load_machines(file).items()}
    assert stays == {
        "node-7": [Interval(0.0, 60.0), Interval(100.0, 200.0)],
        "node-9": [Interval(50.0, 300.0)],
        "node-11": [],
    }


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("1 1 7 1 lab 1 5", "at least 8 columns"),
        ("1 1 7 1 lab 1 five 6 -1", "'five' is not a time"),
        ("1 1 7 1 lab 1 5 nan -1", "'nan' is not a time"),
        ("1 1 7 1 lab 1 6 5 -1", "before it starts"),
    ],
)
def test_mistake_in_an_event_trace_is_reported_with_its_line(line: str, what: str) -> None:
    with pytest.raises(LooplineError, match="line 2 is not an event") as raised:
        read_event_trace(["# a comment", line])
    assert what in raised.value.message
    with pytest.raises(LooplineError, match="no events"):
        read_event_trace(["# a comment"])
