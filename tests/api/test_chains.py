"""Jobs with dependencies over REST: rows of ended dependencies are read again if they changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from loopline_master.store import Store
from loopline_shared.model import JobState
from tests.api.bench import Bench

AFTER = {"command": ["work"]}


def read_too_early(master: Bench, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let the first ``times`` reads see the jobs before their end; return a list with one entry per read."""
    states, reads = master.parts[Store].jobs.states, []

    async def early(numbers: Iterable[int]) -> dict[int, JobState]:
        found = await states(numbers)
        reads.append(len(found))
        return dict.fromkeys(found, JobState.RUNNING) if len(reads) <= times else found

    monkeypatch.setattr(master.parts[Store].jobs, "states", early)
    return reads


async def cancelled(master: Bench) -> int:
    job = await master.submit(**AFTER)
    await master.ask("POST", f"/jobs/{job}/cancel")
    return job


async def test_job_waits_for_its_dependencies(master: Bench) -> None:
    first = await master.submit(**AFTER)
    after = await master.submit(**AFTER, after=[first])
    view = await master.get(f"/jobs/{after}")
    assert (view["state"], view["waiting_for"], view["entered_at"], view["eta"]) == ("waiting", [first], None, None)
    assert view["eta_note"] == "it waits for other jobs, and is not yet in the grid"
    assert [job["id"] for job in (await master.get("/jobs?state=waiting"))["items"]] == [after]
    explained = await master.get(f"/jobs/{after}/explain")
    assert [(reason["code"], reason["job"]) for reason in explained["reasons"]] == [("waits", first)]
    assert (await master.get(f"/jobs/{after}/tasks/1"))["state"] == "queued"
    answer = await master.ask("POST", f"/jobs/{after}/retry")
    assert (answer.status, answer.body["code"]) == (409, "not_retriable")
    assert (await master.ask("POST", f"/jobs/{after}/cancel")).body["state"] == "cancelled"
    assert (await master.ask("POST", f"/jobs/{after}/retry")).body["state"] == "waiting"


async def test_submission_warns_behind_a_cancelled_job(master: Bench) -> None:
    before = lost = await cancelled(master)
    for why in (f"job {lost} was cancelled", f"waits for job {lost}, which was cancelled"):
        body = {**AFTER, "after": [before]}
        for path in ("/jobs/preview", "/jobs"):
            answer = await master.ask("POST", path, json=body)
            (warning,) = [one for one in answer.body["warnings"] if "can never start" in one]
            assert why in warning
            assert f"`loopline retry {lost}`" in warning
        before = answer.body["id"]
        explained = await master.get(f"/jobs/{before}/explain")
        assert [(reason["code"], reason["job"]) for reason in explained["reasons"]] == [("waits_in_vain", lost)]
        assert why in explained["sentence"]
    running = await master.submit(**AFTER)
    answer = await master.ask("POST", "/jobs", json={**AFTER, "after": [running]})
    assert not [one for one in answer.body["warnings"] if "can never start" in one]


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_dependencies_read_too_early_are_read_again(
    master: Bench, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    job = await cancelled(master)
    reads = read_too_early(master, monkeypatch, times)
    after = await master.submit(**AFTER, after=[job])
    assert len(reads) > times
    view: dict[str, Any] = await master.get(f"/jobs/{after}")
    assert (view["state"], view["waiting_for"]) == ("waiting", [job])


async def test_submission_is_refused_after_too_many_stale_reads(
    master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await cancelled(master)
    read_too_early(master, monkeypatch, 1000)
    answer = await master.ask("POST", "/jobs", json={**AFTER, "after": [job]})
    assert (answer.status, answer.body["code"]) == (409, "changed_meanwhile")


async def test_a_quorum_needs_replicas(master: Bench) -> None:
    answer = await master.ask("POST", "/jobs", json={**AFTER, "quorum": 3, "max_replicas": 2})
    assert answer.status == 422
    assert "a quorum of 3 needs max_replicas of at least 3" in answer.body["errors"][0]["message"]


async def test_eta_record_and_explanation_of_a_worker(master: Bench) -> None:
    report = await master.get("/forecasts")
    assert [(moment["moment"], moment["jobs"]) for moment in report["moments"]] == [(0, 0), (25, 0), (50, 0), (75, 0)]
    async with master.worker("ant"):
        assert (await master.get("/workers/ant/explain"))["state"] == "connected"
    assert (await master.ask("GET", "/workers/nobody/explain")).status == 404
