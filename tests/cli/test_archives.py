"""Exports of a grid's past can be read back: workload logs and availability traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopline.cli.errors import Exit
from loopline.cli.render.archives import fta, swf
from loopline_shared.model import JobState
from loopline_shared.rest.bodies import ParallelReport, PastJob, WaitOfNodes, WorkerStay
from loopline_simulator.fast.availability import Interval
from loopline_simulator.traces.fta import read_event_trace
from loopline_simulator.traces.swf import Selection, SwfJob, arrivals, read_jobs
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, ok, page

KTH = """\
219 699929 60 19 4 -1 -1 4 1800 -1 1 16 16 -1 -1 -1 -1 -1
220 699952 50100 29 64 -1 -1 64 3600 -1 1 11 11 -1 -1 -1 -1 -1
221 700149 6240 979 5 -1 -1 5 52800 -1 1 34 34 -1 -1 -1 -1 -1
222 700266 92640 1082 5 -1 -1 5 52800 -1 1 34 34 -1 -1 -1 -1 -1
223 700286 60 23 2 -1 -1 2 60 -1 0 11 11 -1 -1 -1 -1 -1
224 700507 60 21 2 -1 -1 2 60 -1 0 11 11 -1 -1 -1 -1 -1
225 700553 60 29 4 -1 -1 4 1800 -1 1 16 16 -1 -1 -1 -1 -1
226 700885 0 25 2 -1 -1 2 60 -1 0 11 11 -1 -1 -1 -1 -1
227 701455 0 18 4 -1 -1 4 1800 -1 1 16 16 -1 -1 -1 -1 -1
228 701510 0 6 2 -1 -1 2 60 -1 0 11 11 -1 -1 -1 -1 -1
229 701786 0 15 2 -1 -1 2 60 -1 0 11 11 -1 -1 -1 -1 -1
230 702050 0 2 2 -1 -1 2 60 -1 0 11 11 -1 -1 -1 -1 -1
231 702229 0 25 2 -1 -1 2 300 -1 1 11 11 -1 -1 -1 -1 -1
232 703359 2940 11302 1 -1 -1 1 12000 -1 1 35 35 -1 -1 -1 -1 -1
233 704094 3480 28 4 -1 -1 4 1800 -1 1 16 16 -1 -1 -1 -1 -1
234 706229 86160 12821 16 -1 -1 16 52800 -1 1 6 6 -1 -1 -1 -1 -1
235 709940 82560 25 16 -1 -1 16 52800 -1 1 6 6 -1 -1 -1 -1 -1
236 713601 60 593 8 -1 -1 8 2400 -1 1 29 29 -1 -1 -1 -1 -1
237 714393 60 970 9 -1 -1 9 3000 -1 1 29 29 -1 -1 -1 -1 -1
238 719384 0 21 4 -1 -1 4 600 -1 1 17 17 -1 -1 -1 -1 -1
239 719779 0 15 2 -1 -1 2 60 -1 0 11 11 -1 -1 -1 -1 -1
240 720818 0 21 2 -1 -1 2 300 -1 1 11 11 -1 -1 -1 -1 -1
241 721102 0 20 2 -1 -1 2 300 -1 1 11 11 -1 -1 -1 -1 -1
242 722804 0 3138 5 -1 -1 5 3600 -1 1 13 13 -1 -1 -1 -1 -1
"""
"""Jobs of KTH SP2's log in the Parallel Workloads Archive, by Lars Malinowsky, Swedish Royal Institute of Technology;
converted by Dror Feitelson."""
STATES = {1: JobState.SUCCEEDED, 0: JobState.FAILED, 5: JobState.CANCELLED}
START = 843_480_031


def past(job: SwfJob) -> PastJob:
    """Return the job as a grid would have run it: on as many nodes."""
    assert job.processors is not None
    wait, run_s = job.wait or 0.0, job.run_time or 0.0
    started_at = START + job.submitted + wait
    return PastJob(
        id=job.number,
        user=f"user-{job.user}",
        name="",
        state=STATES[job.status or 0],
        submitted_at=START + job.submitted,
        started_at=started_at,
        finished_at=started_at + run_s,
        task_count=1,
        nodes=job.processors,
        slots=1,
        results=job.processors,
        wall_s=run_s * job.processors,
        cpu_s=0.9 * run_s * job.processors,
        peak_memory_bytes=2**20,
    )


def bag(**changes: Any) -> PastJob:
    fields = {
        "id": 3, "user": "ann", "name": "sweep", "state": JobState.SUCCEEDED, "submitted_at": 1000.0,
        "started_at": 1010.5, "finished_at": 2000.0, "task_count": 100, "nodes": 1, "slots": 2, "results": 100,
        "wall_s": 6000.0, "cpu_s": 10_000.0, "peak_memory_bytes": 2**30,
    }  # fmt: skip
    return PastJob(**{**fields, **changes})


def check_same(recorded: list[SwfJob]) -> None:
    """Check that an exported log has the jobs of the recorded one."""
    lines = "".join(swf([past(job) for job in reversed(recorded)])).splitlines()
    assert all(len(line.split()) == 18 for line in lines if not line.startswith(";"))
    found, users = list(read_jobs(lines)), list(dict.fromkeys(job.user for job in recorded))
    for number, (before, after) in enumerate(zip(recorded, found, strict=True), 1):
        assert after.number == number
        assert after.submitted == before.submitted - recorded[0].submitted
        assert (after.wait, after.run_time, after.status) == (before.wait, before.run_time, before.status)
        assert (after.processors, after.requested_processors) == (before.processors, before.processors)
        assert after.average_cpu == pytest.approx(0.9 * (before.run_time or 0.0), abs=1e-3)
        assert after.user == users.index(before.user) + 1


def test_recorded_log_is_the_same_after_export() -> None:
    recorded = list(read_jobs(KTH.splitlines()))
    check_same(recorded)
    head = "".join(swf([past(job) for job in recorded]))
    assert f"; UnixStartTime: {START + recorded[0].submitted:.0f}\n" in head
    assert len(list(arrivals(read_jobs(head.splitlines()), Selection(unit=0.05)))) == len(recorded)


def test_bag_of_tasks_has_the_work_of_its_tasks() -> None:
    (found,) = arrivals(read_jobs("".join(swf([bag()])).splitlines()), Selection())
    assert found.spec.size == pytest.approx(100 * 2 * 60.0)  # tasks x slots x mean run time


def test_job_that_never_ran_is_unknown() -> None:
    job = bag(state=JobState.CANCELLED, started_at=None, results=0, wall_s=0.0, cpu_s=0.0, peak_memory_bytes=0)
    (found,) = read_jobs("".join(swf([job])).splitlines())
    assert (found.wait, found.run_time, found.average_cpu, found.status) == (None, None, None, 5)
    assert not list(arrivals([found], Selection()))


def test_stays_are_read_back() -> None:
    times = {"pc 1": [(60.0, 600.0), (900.0, 1200.0)], "lab/2": [(300.0, 360.0)]}
    stays = [WorkerStay(worker=name, since=a, until=b) for name, spans in times.items() for a, b in spans]
    machines = read_event_trace("".join(fta(stays)).splitlines())
    assert list(machines) == ["node-1", "node-2"]
    assert list(machines["node-1"].stays) == [Interval(0.0, 540.0), Interval(840.0, 1140.0)]
    assert list(machines["node-2"].stays) == [Interval(240.0, 300.0)]


def test_history_writes_both_files(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    fake.on("GET /history/jobs", page(bag()))
    fake.on("GET /history/stays", page(WorkerStay(worker="ant", since=60.0, until=120.0)))
    log, trace = tmp_path / "grid.swf", tmp_path / "event_trace.tab"
    done = run("history", "--swf", str(log), "--fta", str(trace), "--since", "1970-01-01T00:00:10Z")
    assert done.code == Exit.OK
    assert "wrote 1 job to" in done.out
    assert "wrote 1 worker to" in done.out
    assert [asked.query["since"] for asked in fake.asked("GET /history/jobs")] == ["10.0"]
    assert len(list(read_jobs(log.read_text().splitlines()))) == 1
    assert list(read_event_trace(trace.read_text().splitlines())) == ["node-1"]
    refused = run("history", "--swf", str(tmp_path / "no" / "folder"))
    assert refused.code == Exit.FAILED
    assert "give another file" in refused.err


def test_history_shows_the_measures_of_the_rack_paper(fake: FakeMaster, run: Run) -> None:
    waits = [WaitOfNodes(nodes=nodes, jobs=1, mean_wait_s=60.0 * nodes, longest_wait_s=90.0) for nodes in (2, 4)]
    report = ParallelReport(
        since=0.0, until=1e6, jobs=2, truncated=False, offered_s=1000.0, used_s=700.0, parallel_s=400.0,
        mean_wait_s=180.0, s_per_node=60.0, correlation=1.0, residual_s=0.0, waits=waits,
    )  # fmt: skip
    fake.on("GET /history/parallel", ok(report))
    shown = run("history", "--parallel").out
    assert "used 70%, by jobs on several nodes 40%" in shown
    assert "each node makes a job wait 1m more (correlation 1.00" in shown
    assert "2m" in shown
    empty = {"jobs": 0, "offered_s": 0.0, "waits": [], "s_per_node": None, "correlation": None, "residual_s": None}
    fake.on("GET /history/parallel", ok(report.model_copy(update=empty)))
    assert "no job on several nodes has started" in run("history", "--parallel").out
