"""The master's own state: health, audit, metrics, and the stream of changes."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from loopline.local.local_grid import reserved
from loopline_master.http import web_app
from loopline_master.http.edge.listener import standing_in
from loopline_master.http.live import streams
from loopline_master.settings import MasterSettings
from loopline_master.store import Store, StoreBroken
from loopline_master.store import store as stores
from tests.api.bench import Bench, done, running_master, until

BOARD = Path(__file__).parents[2] / "examples/grafana/loopline.json"
NAME = re.compile(r"loopline_\w+")


async def next_change(events: aiohttp.StreamReader) -> dict[str, Any]:
    while not (line := await events.readline()).startswith(b"data: "):
        assert line, "the stream ended"
    return dict(json.loads(line.removeprefix(b"data: ")))


async def samples(master: Bench) -> dict[str, float]:
    text = (await master.ask("GET", "//metrics", "reader")).content.decode()
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_event_stream_reports_changes(master: Bench) -> None:
    async with master.stream("/events", "reader") as events:
        assert await next_change(events) == {"jobs": [], "workers": [], "missed": True}
        job = await master.submit()
        assert await next_change(events) == {"jobs": [job], "workers": [], "missed": False}
        async with master.worker("w1"):
            seen: dict[str, set[Any]] = {"jobs": set(), "workers": set()}
            while not (job in seen["jobs"] and "w1" in seen["workers"]):
                change = await next_change(events)
                for kind in seen:
                    seen[kind] |= set(change[kind])


async def test_event_stream_resumes_from_the_last_id(master: Bench) -> None:
    async with master.stream("/events", "reader") as events:
        await next_change(events)
        first = await master.submit()
        while not (line := await events.readline()).startswith(b"id: "):
            assert line
        assert (await next_change(events))["jobs"] == [first]
    mark = line.removeprefix(b"id: ").strip().decode()
    second = await master.submit()
    at, headers = master.address("/events"), master.headers("reader")
    for query, more in (("", {"Last-Event-ID": mark}), (f"?after={mark}", {})):
        async with master.http.get(at + query, headers=headers | more) as again:
            change = await next_change(again.content)
            assert (second in change["jobs"], change["missed"]) == (True, False)
    for unknown in ("00000000-1", "nonsense", mark.partition("-")[0] + "-999"):
        async with master.http.get(at, headers=headers | {"Last-Event-ID": unknown}) as again:
            assert (await next_change(again.content))["missed"]


async def test_quiet_stream_sends_keepalives(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CHANGES_STILL_HERE_EVERY_S", 0.01)
    async with master.stream("/events") as events:
        await next_change(events)
        assert [await events.readline() for _ in range(3)] == [b"\n", b"event: here\n", b"data: {}\n"]


async def test_number_of_listeners_is_limited(tmp_path: Path) -> None:
    async with running_master(tmp_path, limits={"max_listeners": 1}) as master:
        async with master.stream("/events"):
            refused = await master.ask("GET", "/events")
            assert (refused.status, refused.body["code"]) == (503, "too_many_listeners")

        async def is_free() -> bool:
            async with master.http.get(master.address("/events"), headers=master.headers("admin")) as response:
                return response.status == 200

        await until(is_free)


async def test_open_streams_do_not_delay_a_stopping_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_app, "STOP_WITHIN_S", 3600.0)
    async with aiohttp.ClientSession() as http:
        async with running_master(tmp_path) as master:
            job = await master.submit()
            for path in ("/events", f"/jobs/{job}/results"):
                response = await http.get(master.address(path), headers=master.headers("admin"))
                assert response.status == 200
            begun = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begun < 60


async def test_master_is_healthy_until_its_database_breaks(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("//healthz", "//readyz"):
        assert (await master.get(path, None)) == {"status": "ok"}

    async def breaks(*_: object) -> None:
        raise StoreBroken("store_broken", "writing failed: the disk is full", status=503)

    monkeypatch.setattr(master.parts[Store], "check", breaks)
    answer = await master.ask("GET", "//readyz", None)
    assert (answer.status, answer.body["code"]) == (503, "store_broken")
    assert (await master.ask("GET", "//healthz", None)).status == 200


async def test_master_that_may_be_superseded_answers_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "is_sqlite", lambda _: False)  # a SQLite master cannot be superseded
    monkeypatch.setattr(stores, "_begin_epoch", lambda *_: None)  # only possible with a database server
    async with running_master(tmp_path) as master:
        await master.get("/whoami")

        async def superseded(*_: object) -> None:
            raise StoreBroken("superseded", "another master has taken over", status=503)

        monkeypatch.setattr(master.parts[Store], "confirm", superseded)
        for path in ("/jobs", "/whoami", "//"):
            answer = await master.ask("GET", path)
            assert (answer.status, answer.body["code"]) == (503, "superseded")
        assert (await master.ask("GET", "//healthz", None)).status == 200


async def test_starting_master_does_not_wait_for_unfinished_requests(tmp_path: Path) -> None:
    port = reserved()
    settings = MasterSettings(data_dir=tmp_path, port=port.number)
    async with asyncio.timeout(8), standing_in(settings, "database"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nand no more")
        assert b"503" in await reader.readline()
    writer.close()
    port.release()


async def test_requests_to_a_broken_engine_are_refused(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: object) -> None:
        raise StoreBroken("store_broken", "writing failed: the disk is full", status=503)

    monkeypatch.setattr(master.parts[Store], "commit", breaks)
    for _ in range(2):
        answer = await master.ask("POST", "/jobs", json={"command": ["a"]})
        assert (answer.status, answer.body["code"]) == (503, "store_broken")


async def test_metrics_count_submissions_and_results(master: Bench) -> None:
    job = await master.submit(parameters={"i": {"range": [1, 5]}})
    before = await samples(master)
    assert before["loopline_jobs queued"] == 1
    async with master.worker(slots=2):
        await until(lambda: _is_over(master, job))
        during = await samples(master)
        assert (during["loopline_workers connected"], during["loopline_slots offered"]) == (1, 2)
    after = await samples(master)
    assert after["loopline_jobs_ended_total succeeded"] == 1
    assert after["loopline_tasks_ended_total succeeded"] == 5
    assert after["loopline_attempts_ended_total succeeded"] == 5
    assert after["loopline_attempts_dispatched_total false"] == 5
    assert after["loopline_completions_checked"] == 1
    assert after["loopline_passings"] == 0
    assert after["loopline_step_seconds_count"] > before["loopline_step_seconds_count"]
    assert after["loopline_commit_seconds_count"] == after["loopline_step_seconds_count"]
    assert after["loopline_user_step_seconds_total the-admin"] > before["loopline_user_step_seconds_total the-admin"]
    assert after["loopline_event_log_entries"] > before["loopline_event_log_entries"]
    assert "loopline_jobs queued" not in after


async def test_master_view_shows_health_and_cost_by_user(master: Bench) -> None:
    await master.submit(parameters={"i": {"range": [1, 5]}})
    view = await master.get("/master", "reader")
    heavy = {one["user"]: one for one in view["users"]}
    assert (heavy["the-admin"]["jobs"], heavy["the-admin"]["tasks"]) == (1, 5)
    assert heavy["the-admin"]["step_s"] > 0
    assert heavy["the-reader"]["requests"] == 1
    assert view["steps"]["commit"]["most_s"] <= view["steps"]["step"]["most_s"]
    assert view["sizes"]["database_bytes"] > 0 < view["sizes"]["disk_free_bytes"]
    assert view["sizes"]["stored_a_day"] is None, "the growth is unknown after such a short time"
    assert (await master.ask("GET", "/master", "worker")).status == 403


async def test_grafana_dashboard_uses_only_existing_metrics(master: Bench) -> None:
    text = (await master.ask("GET", "//metrics", "reader")).content.decode()
    measured = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    board = json.loads(BOARD.read_text())
    asked = {name for panel in board["panels"] for one in panel["targets"] for name in NAME.findall(one["expr"])}
    assert len(asked) > 15
    assert {name.removesuffix("_bucket") for name in asked} <= measured


async def test_alert_rules_use_only_existing_metrics(master: Bench) -> None:
    text = (await master.ask("GET", "//metrics", "reader")).content.decode()
    measured = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    rules = YAML(typ="safe").load(BOARD.with_name("alerts.yml"))["groups"][0]["rules"]
    asked = {name for rule in rules for name in NAME.findall(rule["expr"])}
    assert len(asked) > 5
    assert asked <= measured
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)


async def test_worker_that_reports_impossible_figures_is_flagged(
    master: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    lie = partial(done, wall_s=1e9, cpu_s=1e9, peak_memory_bytes=2**50)
    async with master.worker("liar", does=lie):
        job = await master.submit(size=1.0)

        async def is_over() -> Any:
            return (await master.get(f"/jobs/{job}", "reader"))["state"] == "succeeded"

        await until(is_over)
        worker = await master.get("/workers/liar", "reader")
        assert worker["overstated"] == 1
        assert (
            "impossible times, memory, speed or cores (1 time)"
            in (await master.get("/workers/liar/explain"))["sentence"]
        )
    (attempt,) = (await master.get(f"/jobs/{job}/tasks/1", "reader"))["attempts"]
    assert attempt["wall_s"] < 3600.0
    assert attempt["cpu_s"] < 3600.0 * worker["facts"]["cpus"]
    assert attempt["peak_memory_bytes"] == worker["facts"]["memory_bytes"]
    (program,) = (await master.get("/programs", "reader"))["items"]
    assert program["predicted"]["mean"] < 3600.0
    assert (await samples(master))["loopline_overstated_results_total"] == 1.0
    assert f"worker liar reported impossible figures for attempt {job}.1.1" in caplog.text


async def test_every_role_can_read_the_audit(master: Bench) -> None:
    assert await master.get("/passing", "reader") == {
        "order": "hold",
        "within": "grid",
        "completions": 0,
        "passings": 0,
        "excused": {},
        "latest": [],
        "unfounded": [],
    }


async def _is_over(master: Bench, job: int) -> bool:
    return (await master.get(f"/jobs/{job}"))["finished_at"] is not None


async def test_requests_beyond_a_users_limits_are_refused(tmp_path: Path) -> None:
    limits = {"user_listeners": 1, "user_jobs": 1, "user_spec_bytes": 1000}
    async with running_master(tmp_path, limits=limits) as master:
        async with master.stream("/events", "reader"), master.stream("/events", "user"):
            refused = await master.ask("GET", "/events", "user")
            assert (refused.status, refused.body["code"]) == (429, "user_listeners")
            assert refused.headers["RateLimit-Policy"] == '"user_listeners";q=1;qu="concurrent-requests"'
            assert refused.headers["RateLimit"] == '"user_listeners";r=0'
            large = {"command": ["work", "x" * 1000]}
            refused = await master.ask("POST", "/jobs", "user", json=large)
            assert (refused.status, refused.body["code"]) == (429, "user_spec_bytes")
            await master.submit("user")
            refused = await master.ask("POST", "/jobs", "user", json={"command": ["work"]})
            assert (refused.status, refused.body["code"]) == (429, "user_jobs")
            assert "1 of the 1 unfinished jobs" in refused.body["detail"]
            (user,) = (await master.get("/shares"))["users"]
            used = {one["what"]: (one["used"], one["allowed"]) for one in user["limits"]}
            assert (used["jobs"], used["listeners"], used["tasks"]) == ((1, 1), (1, 1), (1, 5_000_000))
            assert used["spec_bytes"] == (len('{"command":["work"]}'), 1000)
        await master.submit("admin")
