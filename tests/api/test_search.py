"""Searches across tasks: failures of all jobs by reason, lines of a job's output, jobs by end time."""

from __future__ import annotations

from typing import Any

import pytest

from loopline_master.http.live import output_search
from loopline_shared.model import Outcome, Output, Result
from loopline_shared.protocol.worker_link import Run
from tests.api.bench import Bench, done, until


def failed(run: Run, reason: str, exit_code: int = 1) -> Result:
    return Result(run.attempt, Outcome.FAILED, exit_code=exit_code, reason=reason)


async def ended(master: Bench, *jobs: int) -> None:
    for job in jobs:

        async def is_over(job: int = job) -> bool:
            return (await master.get(f"/jobs/{job}"))["finished_at"] is not None

        await until(is_over)


async def test_failures_of_all_jobs_are_grouped_by_reason(master: Bench) -> None:
    def does(run: Run) -> Result:
        job, task = run.attempt.job, run.attempt.task
        return failed(run, "" if job == 3 else f"cannot read {'ab'[task - 1]}.csv in line {7 * job}")

    sweep: dict[str, Any] = {"parameters": {"file": ["a.csv", "b.csv"]}, "max_attempts": 1}
    jobs = [await master.submit(**sweep), await master.submit(**sweep), await master.submit(max_attempts=1)]
    async with master.worker(does=does):
        await ended(master, *jobs)
    report = await master.get("/failures")
    kinds = [(one["tasks"], one["jobs"], one["reason"], one["example"]) for one in report["kinds"]]
    assert kinds == [(4, [2, 1], "cannot read a.csv in line 14", "2.1"), (1, [3], "exit code 1", "3.1")]
    assert (report["job_count"], report["truncated"]) == (3, False)
    assert (await master.get("/failures?user=nobody"))["kinds"] == []
    assert (await master.get("/failures?since=9e9"))["kinds"] == []


async def test_failures_that_differ_only_in_a_file_name_are_one_group(master: Bench) -> None:
    names = {1: "a.csv", 2: "b.csv"}
    for name in names.values():
        await master.submit(parameters={"file": [name]}, max_attempts=1)
    async with master.worker(does=lambda run: failed(run, f"cannot read {names[run.attempt.job]}")):
        await ended(master, *names)
    [kind] = (await master.get("/failures"))["kinds"]
    assert (kind["tasks"], kind["jobs"]) == (2, [2, 1])


async def test_search_finds_lines_of_all_tasks_in_both_streams(
    master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_search, "_PIECE_BYTES", 1000)
    printed = b"first\nLoss: 0.5\n" + b"x" * 3000 + b" loss loss\n\xff loss\n"

    def does(run: Run) -> Result:
        return done(run, printed, stderr=Output(11, data=b"no LOSS\nend"))

    job = await master.submit(parameters={"i": [1, 2]})
    async with master.worker(does=does):
        await ended(master, job)
    page = await master.get(f"/jobs/{job}/lines?text=loss")
    found = [(one["task"], one["stream"], one["line"], one["text"].lstrip("x")) for one in page["items"]]
    streams = [("stdout", 2, "Loss: 0.5"), ("stdout", 3, " loss loss"), ("stdout", 4, "\ufffd loss")]
    assert found == [(f"{job}.{n}", *line) for n in (1, 2) for line in [*streams, ("stderr", 1, "no LOSS")]]
    assert len(page["items"][1]["text"]) < 500
    assert page["next"] is None
    assert (await master.get(f"/jobs/{job}/lines?text=nothing"))["items"] == []
    assert (await master.ask("GET", "/jobs/9/lines?text=x")).status == 404


async def test_search_continues_where_a_page_ended(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_search, "MOST_BYTES", 1)
    job = await master.submit(parameters={"i": [1, 2, 3]})
    async with master.worker(does=lambda run: done(run, b"here\n" if run.attempt.task == 3 else b"-\n")):
        await ended(master, job)
    cursor, found, pages = "", [], 0
    while cursor is not None:
        page = await master.get(f"/jobs/{job}/lines?text=here{cursor and f'&cursor={cursor}'}")
        cursor, pages = page["next"], pages + 1
        found += [one["task"] for one in page["items"]]
    assert (found, pages) == (["1.3"], 4)


async def test_jobs_are_listed_by_end_time(master: Bench) -> None:
    job = await master.submit()
    async with master.worker():
        await ended(master, job)
    at = (await master.get(f"/jobs/{job}"))["finished_at"]
    assert [one["id"] for one in (await master.get(f"/jobs?ended_since={at}"))["items"]] == [job]
    assert (await master.get(f"/jobs?ended_until={at}"))["items"] == []
    assert (await master.get("/jobs?ended_since=9e9"))["items"] == []
