"""HTTP conventions of responses: HEAD, ETags, times with their zone, Location of new resources."""

from __future__ import annotations

import asyncio
import io
import json
import math
import zipfile
from typing import Any

import pytest

from loopline_master.change_feed import ChangeFeed
from loopline_master.files.blobs import Blobs
from loopline_master.http.live import shared_answers, streams
from loopline_master.http.live.shared_answers import SEEN
from loopline_master.store import Store
from loopline_shared.rest.bodies import JobView
from loopline_shared.rest.times import rfc3339
from tests.api.bench import Answer, Bench
from tests.api.test_outputs import finished

pytestmark = pytest.mark.asyncio(loop_scope="module")

TODAY = {"User-Agent": "curl/8.0"}
OF_0_1 = {"User-Agent": "Python/3.11 aiohttp/3.12.15"}


async def ask(master: Bench, method: str, path: str, **headers: str) -> Answer:
    return await master.ask(method, path, headers={**TODAY, **headers})


@pytest.mark.parametrize(
    "path",
    ["/jobs", "/jobs/{}", "/jobs/{}/results", "/jobs/{}/results?follow=false", "/events", "//metrics", "/whoami"],
)
async def test_head_answers_as_get_does_without_a_body(shared_master: Bench, path: str) -> None:
    path = path.format(await shared_master.submit())
    answer = await ask(shared_master, "HEAD", path)
    assert (answer.status, answer.content) == (200, b"")
    assert answer.headers["Content-Type"]
    assert (await ask(shared_master, "HEAD", "/jobs/999999")).status == 404


async def test_matching_etag_returns_not_modified(shared_master: Bench) -> None:
    job = await shared_master.submit()
    first = await ask(shared_master, "GET", f"/jobs/{job}")
    again = await ask(shared_master, "GET", f"/jobs/{job}", **{"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.content) == (304, b"")
    await shared_master.ask("POST", f"/jobs/{job}/cancel")
    changed = await ask(shared_master, "GET", f"/jobs/{job}", **{"If-None-Match": first.headers["ETag"]})
    assert (changed.status, changed.body["state"]) == (200, "cancelled")


async def test_submission_returns_the_location_of_its_job(shared_master: Bench) -> None:
    made = await shared_master.ask("POST", "/jobs", json={"command": ["a"]})
    there = await shared_master.ask("GET", "/" + made.headers["Location"])
    assert there.body["id"] == made.body["id"]


async def test_times_are_rfc_3339_in_utc(shared_master: Bench) -> None:
    job = await shared_master.submit()
    answer = await ask(shared_master, "GET", f"/jobs/{job}")
    assert answer.body["submitted_at"].endswith("Z")
    assert rfc3339(JobView.model_validate_json(answer.content).submitted_at) == answer.body["submitted_at"]


async def test_available_results_are_one_response_and_streams_start_without_any(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ANSWER_WITHIN_S", 3600.0)
    job = await shared_master.submit()
    asked = asyncio.create_task(ask(shared_master, "GET", f"/jobs/{job}/results"))
    async with shared_master.worker():
        answer = await asked
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    assert answer.content.count(b"\n") == 1
    monkeypatch.setattr(streams, "ANSWER_WITHIN_S", 0.0)
    job = await shared_master.submit()
    async with shared_master.stream(f"/jobs/{job}/results") as content, shared_master.worker():
        assert (await content.readline()).endswith(b"}\n"), "the stream started before a worker joined"


@pytest.mark.parametrize(
    "moment", ["2026-01-31T08:15:30Z", "2026-01-31T09:15:30.000+01:00", "1769847330", "1.769847330e9"]
)
async def test_times_can_be_given_as_seconds_or_rfc_3339(shared_master: Bench, moment: str) -> None:
    answer = await shared_master.get("/timeline", params={"until": moment})
    assert answer["until"] == 1769847330.0


@pytest.mark.parametrize("moment", ["2026-01-31T08:15:30", "yesterday", "2026-01-31", "-1", "nan"])
async def test_time_without_a_zone_is_refused(shared_master: Bench, moment: str) -> None:
    answer = await shared_master.ask("GET", "/timeline", params={"until": moment})
    assert (answer.status, answer.body["errors"][0]["at"]) == (422, "parameters.until")


async def test_archive_lists_missing_files_and_contains_the_others(shared_master: Bench) -> None:
    job = await finished(shared_master, {"a": "here", "b": "gone"})
    lost: Any = (await shared_master.get(f"/jobs/{job}/tasks/1/outputs"))["items"]
    path = shared_master.parts[Blobs].find(next(file["sha256"] for file in lost if file["path"] == "b"))
    assert path is not None
    path.unlink()
    archive = zipfile.ZipFile(io.BytesIO((await ask(shared_master, "GET", f"/jobs/{job}/outputs.zip")).content))
    assert archive.read("1/a") == b"here"
    assert archive.read("MISSING.txt").startswith(b"1/b: ")


async def test_viewers_share_a_response_as_new_as_their_mark(
    shared_master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    page, queries = shared_master.parts[Store].jobs.page, shared_master.parts[Store].jobs

    async def counted(**which: Any) -> object:
        asked.append(which)
        return await page(**which)

    monkeypatch.setattr(queries, "page", counted)
    monkeypatch.setattr(shared_answers, "OLDEST_S", math.inf)
    feed = shared_master.parts[ChangeFeed]

    async def newest(seen: str, query: str = "") -> int:
        answer = await ask(shared_master, "GET", f"/jobs?limit=1{query}", **{SEEN: seen})
        return int(json.loads(answer.content)["items"][0]["id"])

    first = await shared_master.submit()
    before = feed.mark
    assert await asyncio.gather(*[newest(before) for _ in range(5)]) == [first] * 5
    assert len(asked) == 1
    second = await shared_master.submit()
    assert await newest(feed.mark) == second, "the kept response is too old"
    assert (await newest(before), len(asked)) == (second, 2), "a response newer than needed is reused"
    for exact in ("", "another-1"):
        await newest(exact)
    assert len(asked) == 4, "requests without a mark of this master share no response"
    refused = await ask(shared_master, "GET", "/jobs?cursor=x", **{SEEN: before})
    assert (refused.status, await newest(before, "&sort=id") > 0) == (400, True)
    monkeypatch.setattr(shared_answers, "OLDEST_S", 0.0)
    await newest(before)
    assert len(asked) == 7


async def test_shared_response_requires_the_right_role(shared_master: Bench) -> None:
    seen = {SEEN: shared_master.parts[ChangeFeed].mark}
    assert (await shared_master.ask("GET", "/jobs", "reader", headers=seen)).status == 200
    assert (await shared_master.ask("GET", "/jobs", "worker", headers=seen)).status == 403
    assert (await shared_master.ask("GET", "/jobs", None, headers=seen)).status == 401
