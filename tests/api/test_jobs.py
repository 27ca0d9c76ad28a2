"""Jobs over REST: idempotent submission, paged lists, changes, explanations, results."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopline_master.change_feed import Subscriptions
from loopline_master.http.live import streams
from loopline_master.store import Store
from loopline_shared.model import Outcome, Output, Result
from loopline_shared.protocol.worker_link import Run
from loopline_shared.rest.bodies import TaskResult
from loopline_shared.rest.times import seconds
from tests.api.bench import Answer, Bench, done, running_master, until

SPEC = {"command": ["work", "{i}"], "parameters": {"i": {"range": [1, 3]}}, "size": 30}
WAITING = {"Prefer": "wait=1"}


async def submit_under(master: Bench, key: str, spec: dict[str, Any], role: str = "user") -> Answer:
    return await master.ask("POST", "/jobs", role, json=spec, headers={"Idempotency-Key": key})


async def ended(master: Bench, job: int) -> dict[str, Any]:
    async def fact() -> Any:
        view = await master.get(f"/jobs/{job}")
        return view if view["finished_at"] else None

    return dict(await until(fact))


async def test_job_is_returned_as_it_was_submitted(master: Bench) -> None:
    job = await master.submit(**SPEC, role="user", name="three")
    view = await master.get(f"/jobs/{job}", "reader")
    assert view["spec"]["command"] == ["work", "{i}"]
    assert view["spec"]["parameters"] == {"i": {"range": [1, 3]}}
    assert (view["name"], view["user"], view["size"], view["task_count"]) == ("three", "the-user", 30, 3)
    task = await master.get(f"/jobs/{job}/tasks/2")
    assert (task["command"], task["parameters"], task["state"]) == (["work", "2"], {"i": 2}, "queued")


async def test_receipt_of_a_job_without_a_size_notes_the_missing_claim(master: Bench) -> None:
    notes = []
    for spec in (SPEC, {"command": ["work"]}, {"command": ["work"], "session": "s"}):
        notes.append((await master.ask("POST", "/jobs", "user", json=spec)).body["notes"])
    assert notes == [[], ["no size: later jobs may finish first; submit with --size to be counted"], []]


async def test_repeated_key_returns_the_same_job(master: Bench) -> None:
    first = await submit_under(master, "k", SPEC)
    again = await submit_under(master, "k", SPEC)
    assert (first.status, first.body) == (again.status, again.body)
    assert first.body["warnings"]
    other = await submit_under(master, "k", {**SPEC, "size": 31})
    assert (other.status, other.body["code"]) == (409, "key_used")
    of_another = await submit_under(master, "k", SPEC, role="admin")
    assert of_another.body["id"] != first.body["id"]
    assert len((await master.get("/jobs"))["items"]) == 2


async def test_concurrent_requests_with_one_key_create_one_job(master: Bench) -> None:
    answers = await asyncio.gather(*(submit_under(master, "k", SPEC) for _ in range(20)))
    assert {answer.status for answer in answers} == {201}
    assert len({answer.body["id"] for answer in answers}) == 1
    assert len((await master.get("/jobs"))["items"]) == 1


async def test_request_repeated_after_a_disconnect_creates_one_job(
    master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, has_begun, may_commit = master.parts[Store].commit, asyncio.Event(), asyncio.Event()

    async def slow_commit(*arguments: Any) -> None:
        has_begun.set()
        await may_commit.wait()
        await commit(*arguments)

    monkeypatch.setattr(master.parts[Store], "commit", slow_commit)
    first = asyncio.create_task(submit_under(master, "k", SPEC))
    await has_begun.wait()
    first.cancel()
    again = asyncio.create_task(submit_under(master, "k", SPEC))
    await asyncio.sleep(0.1)  # long enough for a second job to be created by mistake
    may_commit.set()
    answer = await again
    assert answer.status == 201
    assert [job["id"] for job in (await master.get("/jobs"))["items"]] == [answer.body["id"]]


async def test_repeated_key_returns_the_same_job_after_a_restart(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        token, first = master.tokens["user"], await submit_under(master, "k", SPEC)
    async with running_master(tmp_path) as master:
        master.tokens["user"] = token
        again = await submit_under(master, "k", SPEC)
        assert (again.status, again.body["id"]) == (201, first.body["id"])
        assert (await submit_under(master, "k", {"command": ["other"]})).status == 409


async def test_submission_that_waits_returns_the_results_of_a_short_job(
    master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ANSWER_WITHIN_S", 60.0)
    async with master.worker():
        answer = await master.ask("POST", "/jobs", "user", json=SPEC, headers=WAITING | {"Idempotency-Key": "k"})
        assert answer.status == 201
        received = await master.ask("GET", f"/jobs/{answer.body['id']}/results")
        streamed = [json.loads(line) for line in received.content.splitlines()]
        assert answer.body["results"] == streamed
        assert [result["number"] for result in streamed] == [1, 2, 3]
        again = await master.ask("POST", "/jobs", "user", json=SPEC, headers=WAITING | {"Idempotency-Key": "k"})
        assert (again.body["id"], again.body["results"]) == (answer.body["id"], None)
        assert (await submit_under(master, "other", SPEC)).body["results"] is None


async def test_submission_that_waits_returns_no_results_of_a_long_job(master: Bench) -> None:
    answer = await master.ask("POST", "/jobs", "user", json=SPEC, headers=WAITING)
    assert (answer.status, answer.body["results"]) == (201, None)
    assert master.parts[Subscriptions].count == 0


async def test_pages_are_contiguous(master: Bench) -> None:
    made = [await master.submit(role="user" if n % 3 else "admin") for n in range(12)]
    assert await all_pages(master, "/jobs", 5) == made[::-1]
    assert await all_pages(master, "/jobs?user=the-admin", 3) == made[::3][::-1]
    assert await all_pages(master, "/jobs?state=running", 3) == []
    named = [await master.submit(name=name) for name in ("50% of Train", "training", "other")]
    assert await all_pages(master, "/jobs?named=train", 1) == named[1::-1]
    assert await all_pages(master, "/jobs?live=true&named=0%25%20of", 3) == named[:1]
    job = await master.submit(**SPEC)
    assert await all_pages(master, f"/jobs/{job}/tasks", 2, "number") == [1, 2, 3]
    assert await all_pages(master, f"/jobs/{job}/tasks?state=failed", 2, "number") == []


async def test_pages_filter_by_label_and_sort(master: Bench) -> None:
    sizes = {"b": 5.0, "a": None, "c": 5.0, "e": 9.0, "d": None}
    labels = {"c": ["gpu", "ssd"], "d": ["gpu_2"]}
    made = {
        name: await master.submit(name=name, size=size, requires={"labels": labels.get(name, [])})
        for name, size in sizes.items()
    }

    async def names(query: str) -> str:
        return "".join(await all_pages(master, f"/jobs?{query}", 2, "name"))

    assert await names("sort=name") == "abcde"
    assert await names("sort=-name") == "edcba"
    assert await names("sort=size") == "bcead"
    assert await names("sort=-size") == "ecbda", "unknown sizes come last in both directions"
    assert await names("sort=id") == "bacde".replace("de", "ed")
    assert await names("label=gpu") == "c"
    assert await all_pages(master, "/jobs?live=true&label=ssd", 2) == [made["c"]]
    assert (await master.ask("GET", "/jobs?sort=colour")).status == 422


async def test_first_page_of_the_queue_includes_the_holding_jobs(tmp_path: Path) -> None:
    """The page shows the head of the queue and totals of all jobs; a retried job goes to the end."""
    async with running_master(tmp_path, single_task_order="hold") as master:
        first, again, *others = [await master.submit(size=5, requires={"labels": ["nowhere"]}) for _ in range(12)]
        for verb in ("cancel", "retry"):
            await master.ask("POST", f"/jobs/{again}/{verb}")
        after = await master.submit(after=[first], parameters={"i": {"range": [1, 9]}})
        assert await all_pages(master, "/jobs?live=true", 5) == [first, *others, again, after]
        window = await master.get("/jobs?live=true&limit=5", "reader")
        assert window["live"] == {"in_grid": 12, "waiting": 1, "held": 11, "tasks_queued": 12}
        holders = {queued["held_by"] for queued in await master.get("/queue")} - {None}
        assert holders <= {job["id"] for job in window["items"]}
        await master.ask("POST", f"/jobs/{first}/cancel")
        assert (await master.get("/jobs?live=true&limit=1"))["items"][0]["id"] == others[0]
        assert (await master.get("/jobs?limit=1"))["live"] is None


async def test_page_length_is_limited(tmp_path: Path) -> None:
    async with running_master(tmp_path, limits={"max_page": 2}) as master:
        for _ in range(3):
            await master.submit()
        page = await master.get("/jobs?limit=1000")
        assert len(page["items"]) == 2
        assert page["next"]


async def test_jobs_are_declined_before_the_disk_is_full(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        job = await master.submit(command=["true"])
    assert stat.S_IMODE((tmp_path / "loopline.db").stat().st_mode) == 0o600
    async with running_master(tmp_path, limits={"disk_reserve_bytes": 2**62}) as master:
        answer = await master.ask("POST", "/jobs", json={"command": ["true"]})
        assert (answer.status, answer.body["code"]) == (507, "disk_full")
        async with master.worker(slots=1):
            assert (await ended(master, job))["state"] == "succeeded"


async def test_variables_are_shown_to_their_user_and_secrets_never(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        body = {"command": ["work"], "environment": {"HOST": "db1"}, "secrets": {"KEY": "hush-hush"}}
        job, again = [
            (await master.ask("POST", "/jobs", "user", json=body, headers={"Idempotency-Key": "k"})).body["id"]
            for _ in range(2)
        ]
        assert job == again
        seen = {role: (await master.get(f"/jobs/{job}", role))["spec"] for role in ("user", "admin", "reader")}
        assert seen["user"]["environment"] == seen["admin"]["environment"] == {"HOST": "db1", "KEY": "(hidden)"}
        assert seen["reader"]["environment"] == {"HOST": "(hidden)", "KEY": "(hidden)"}
        received = {"command": ["work"], "environment": seen["reader"]["environment"]}
        refused = await master.ask("POST", "/jobs", json=received)
        assert (refused.status, refused.body["code"]) == (422, "hidden_value")
        ran: list[Run] = []

        def does(run: Run) -> Result:
            ran.append(run)
            return done(run)

        async with master.worker(does=does):
            assert (await ended(master, job))["state"] == "succeeded"
        assert ran[0].environment == {"HOST": "db1", "KEY": "hush-hush", "LOOPLINE_SECRETS": "KEY"}
    assert not any(b"hush-hush" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


async def test_job_can_be_paused_resumed_and_cancelled(master: Bench) -> None:
    job = await master.submit()
    assert (await master.ask("POST", f"/jobs/{job}/pause")).body["paused"] is True
    assert "paused" in (await master.get(f"/jobs/{job}/explain"))["sentence"]
    assert (await master.ask("POST", f"/jobs/{job}/resume")).body["paused"] is False
    assert (await master.ask("POST", f"/jobs/{job}/retry")).status == 409
    assert (await master.ask("POST", f"/jobs/{job}/cancel")).body["state"] == "cancelled"
    for verb in ("cancel", "pause", "resume"):
        assert (await master.ask("POST", f"/jobs/{job}/{verb}")).status == 409
    assert "was cancelled" in (await master.get(f"/jobs/{job}/explain"))["sentence"]
    assert "was cancelled" in (await master.get(f"/jobs/{job}/tasks/1/explain"))["sentence"]
    assert (await master.ask("POST", f"/jobs/{job}/retry")).body["state"] == "queued"


async def test_one_of_two_concurrent_retries_succeeds(master: Bench) -> None:
    job = await master.submit()
    await master.ask("POST", f"/jobs/{job}/cancel")
    answers = await asyncio.gather(*(master.ask("POST", f"/jobs/{job}/retry") for _ in range(5)))
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409, 409]
    async with master.worker():
        assert (await ended(master, job))["state"] == "succeeded"
    assert (await master.ask("POST", f"/jobs/{job}/retry")).status == 409


async def test_explanations_of_a_waiting_and_a_running_job(master: Bench) -> None:
    job = await master.submit(**SPEC)
    explained = await master.get(f"/jobs/{job}/explain")
    assert explained["reasons"][0]["code"] == "no_worker"
    async with master.worker(slots=1, does=lambda run: None) as worker:
        await until(lambda: holds(worker, 1))
        assert "running on w1" in (await master.get(f"/jobs/{job}/tasks/1/explain"))["sentence"]
        assert (await master.get(f"/jobs/{job}/explain"))["state"] == "running"
    assert (await master.ask("GET", f"/jobs/{job}/tasks/4/explain")).status == 404


async def test_attempts_are_listed_by_job_and_by_time(master: Bench) -> None:
    job = await master.submit(**SPEC)
    async with master.worker():
        view = await ended(master, job)
    of_job = (await master.get(f"/jobs/{job}/attempts"))["items"]
    assert [attempt["id"] for attempt in of_job] == [f"{job}.{n}.1" for n in (1, 2, 3)]
    during = await master.get(f"/attempts?since={view['submitted_at']}&until={view['finished_at']}")
    assert sorted(attempt["id"] for attempt in during["items"]) == [attempt["id"] for attempt in of_job]
    assert (await master.get(f"/attempts?since={seconds(view['finished_at']) + 1}"))["items"] == []


async def test_output_is_returned_unchanged(master: Bench) -> None:
    long = bytes(range(256)) * 40
    await master.ask("PUT", f"/files/{sha256(long)}", "worker", data=long)

    def does(run: Run) -> Result:
        stderr = Output(size_bytes=2**50, cut=True, sha256=sha256(long))
        return Result(run.attempt, Outcome.SUCCEEDED, 0, stdout=Output(3, data=b"\xffok"), stderr=stderr)

    job = await master.submit()
    early = await master.ask("GET", f"/jobs/{job}/tasks/1/stdout")
    assert (early.status, early.body["code"]) == (404, "no_output")
    async with master.worker(does=does):
        await ended(master, job)
    stdout = await master.ask("GET", f"/jobs/{job}/tasks/1/stdout", "reader")
    assert (stdout.content, stdout.headers["X-Loopline-Cut"]) == (b"\xffok", "false")
    stderr = await master.ask("GET", f"/jobs/{job}/tasks/1/stderr")
    assert (stderr.content, stderr.headers["X-Loopline-Cut"]) == (long, "true")
    followed = await master.ask("GET", f"/jobs/{job}/tasks/1/stderr?follow=true")
    assert followed.content == long, "even if the worker reports a wrong size"
    for answer in (stdout, stderr):
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_results_stream_as_tasks_finish(master: Bench) -> None:
    job, may_end = await master.submit(**SPEC), set[int]()

    def does(run: Run) -> Result | None:
        result = replace(done(run, b"%d" % run.attempt.task), metrics={"loss": run.attempt.task / 4})
        return result if run.attempt.task in may_end else None

    async with master.worker(does=does) as worker, results_of(master, job) as lines:
        await until(lambda: holds(worker, 3))
        for number in (2, 1, 3):
            may_end.add(number)
            await worker.look_again()
            result = TaskResult.model_validate_json(await lines.readline())
            assert (result.number, result.stdout, result.parameters) == (number, str(number), {"i": number})
            assert result.metrics == {"loss": number / 4}
        assert await lines.readline() == b""
    now = await master.ask("GET", f"/jobs/{job}/results?follow=false")
    listed = [json.loads(line) for line in now.content.splitlines()]
    assert [result["number"] for result in listed] == [2, 1, 3]
    rest = await master.ask("GET", f"/jobs/{job}/results?cursor={listed[0]['cursor']}")
    assert rest.content.splitlines() == now.content.splitlines()[1:]


@pytest.mark.parametrize("most_ready_bytes", [1, streams.MOST_READY_BYTES])
async def test_each_result_is_streamed_once(
    master: Bench, monkeypatch: pytest.MonkeyPatch, most_ready_bytes: int
) -> None:
    """Results from commits, results with output in a file, and results read from disk for a slow reader."""
    monkeypatch.setattr(streams, "MOST_READY_BYTES", most_ready_bytes)
    monkeypatch.setattr(streams, "STREAM_REST_S", 0.0)
    long = b"long" * 5000
    await master.ask("PUT", f"/files/{sha256(long)}", "worker", data=long)

    def does(run: Run) -> Result:
        if run.attempt.task % 7 == 0:
            return done(run) if run.attempt.number > 1 else Result(run.attempt, Outcome.FAILED, 3, "no luck")
        if run.attempt.task % 5 == 0:
            return Result(run.attempt, Outcome.SUCCEEDED, 0, stdout=Output(len(long), sha256=sha256(long)))
        return done(run, "naïve\xff".encode("latin-1"), value=Output(3, data=b"abc"))

    job = await master.submit(command=["work"], parameters={"i": {"range": [1, 40]}}, size=1000.0, max_attempts=2)
    async with results_of(master, job) as lines, master.worker(does=does):
        received = [line for line in (await lines.read()).splitlines() if line]
    assert len(received) == 40
    assert received == (await master.ask("GET", f"/jobs/{job}/results?follow=false")).content.splitlines()


async def test_results_keep_the_connection_alive(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STILL_HERE_EVERY_S", 0.01)
    job = await master.submit()
    async with results_of(master, job) as lines:
        assert await lines.readline() == b"\n"
        await master.ask("POST", f"/jobs/{job}/cancel")
        assert not (await lines.read()).strip()
    assert (await master.ask("GET", f"/jobs/{job}/results?follow=false")).content == b""


async def test_long_output_is_truncated_in_results(master: Bench) -> None:
    long = b"x" * (streams.MAX_STDOUT_BYTES + 1)
    await master.ask("PUT", f"/files/{sha256(long)}", "worker", data=long)
    job = await master.submit()
    stdout = Output(len(long), sha256=sha256(long))
    async with master.worker(does=lambda run: Result(run.attempt, Outcome.SUCCEEDED, 0, stdout=stdout)):
        result = json.loads((await master.ask("GET", f"/jobs/{job}/results")).content)
    assert (len(result["stdout"]), result["stdout_cut"]) == (streams.MAX_STDOUT_BYTES, True)


def results_of(master: Bench, job: int) -> Any:
    return master.stream(f"/jobs/{job}/results")


async def all_pages(master: Bench, path: str, limit: int, key: str = "id") -> list[Any]:
    items, cursor = [], ""
    while True:
        more = "&" if "?" in path else "?"
        page = await master.get(f"{path}{more}limit={limit}{cursor}")
        assert len(page["items"]) <= limit
        items += [item[key] for item in page["items"]]
        if page["next"] is None:
            return items
        cursor = f"&cursor={page['next']}"


async def holds(worker: Any, count: int) -> bool:
    return len(worker.holding) >= count


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
