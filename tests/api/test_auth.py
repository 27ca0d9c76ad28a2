"""Every route requires a token of the right role."""

from __future__ import annotations

import asyncio
import stat
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import aiohttp
import pytest

from loopline_master.admission import buckets
from loopline_master.http import auth
from loopline_master.http.auth import Auth, TokenTimes
from loopline_master.http.operations import Operation
from loopline_master.http.routes import all_operations
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_master.store.queries.audit_log import AuditedAction
from loopline_shared.errors import LooplineError
from tests.api.bench import ROLES, Bench, running_master

EXAMPLES = {
    "job": "1",
    "task": "1",
    "worker": "w1",
    "user": "ann",
    "sha256": "0" * 64,
    "token": "ab",
    "name": "swagger-ui.css",
    "path": "a.csv",
}
FOREVER = aiohttp.ClientTimeout(total=None)
OPEN = {
    "/api/v1/join",
    "/api/v1/session",
    "/ca.pem",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/docs",
    "/docs/init.js",
    "/docs/{name}",
}


def path_of(operation: Operation) -> str:
    path = operation.path.format(**EXAMPLES)
    return path.removeprefix("/api/v1") if path.startswith("/api/v1") else f"/{path}"


def test_only_the_listed_routes_are_open() -> None:
    assert {operation.path for operation in all_operations() if not operation.access} == OPEN


async def test_every_route_refuses_other_roles(master: Bench) -> None:
    for operation in all_operations():
        if not operation.access:
            assert (await master.ask(operation.method, path_of(operation), None)).status not in (401, 403)
            continue
        wrong = {"Authorization": "Bearer ll_00000000_wrong"}
        for refused in (None, *(role for role in ROLES if role not in operation.access)):
            answer = await master.ask(operation.method, path_of(operation), refused)
            assert answer.status == (403 if refused else 401), (operation.path, refused)
        assert (await master.ask(operation.method, path_of(operation), None, headers=wrong)).status in (401, 429)


async def test_every_route_admits_the_permitted_roles(master: Bench) -> None:
    for operation in all_operations():
        for role in operation.access:
            request = master.http.request(
                operation.method, master.address(path_of(operation)), headers=master.headers(role)
            )
            async with request as response:  # some responses are endless
                assert response.status not in (401, 403), (operation.path, role)


async def test_refusal_says_how_to_authenticate(master: Bench) -> None:
    answer = await master.ask("GET", "/jobs", None)
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert "loopline token create" in answer.body["hint"]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "bearer\tx", "Bearer \u00fc", "ll_x_y"])
async def test_malformed_token_is_refused(master: Bench, header: str) -> None:
    assert (await master.ask("GET", "/jobs", None, headers={"Authorization": header})).status == 401


async def test_users_can_change_only_their_own_jobs(master: Bench) -> None:
    theirs, ours = await master.submit("admin"), await master.submit("user")
    for verb in ("pause", "resume", "cancel", "retry"):
        assert (await master.ask("POST", f"/jobs/{theirs}/{verb}", "user")).status == 403, verb
        assert (await master.ask("POST", f"/jobs/{ours}/{verb}", "user")).status == 200, verb
        assert (await master.ask("POST", f"/jobs/{ours}/{verb}", "admin")).status in (200, 409), verb


async def test_revoked_token_is_refused(master: Bench) -> None:
    made = (await master.ask("POST", "/tokens", json={"name": "eve", "role": "reader"})).body
    master.tokens["eve"] = made["secret"]
    assert (await master.get("/whoami", "eve"))["name"] == "eve"
    revoked = await master.ask("POST", f"/tokens/{made['id']}/revoke")
    assert revoked.body["revoked_at"] is not None
    assert (await master.ask("GET", "/whoami", "eve")).status == 401
    listed = {token["id"]: token for token in (await master.get("/tokens"))["items"]}
    assert listed[made["id"]] == revoked.body
    assert (await master.ask("POST", "/tokens/abc/revoke")).status == 404


async def test_streams_and_links_end_when_their_token_is_revoked(master: Bench) -> None:
    job, ids = await master.submit(), dict[str, str]()
    for role in ("reader", "worker"):
        made = (await master.ask("POST", "/tokens", json={"name": "eve", "role": role})).body
        master.tokens[f"eve's {role}"], ids[role] = made["secret"], made["id"]
    async with AsyncExitStack() as stack:

        async def listen(path: str, whose: str) -> asyncio.Task[None]:
            response = master.http.get(master.address(path), headers=master.headers(whose), timeout=FOREVER)
            content = (await stack.enter_async_context(response)).content
            return asyncio.create_task(_until_the_end(content))

        async def talk(path: str, whose: str) -> asyncio.Task[None]:
            socket = master.http.ws_connect(master.address(path), headers=master.headers(whose))
            return asyncio.create_task(_until_closed(await stack.enter_async_context(socket)))

        paths = ("/events", f"/jobs/{job}/results", f"/jobs/{job}/tasks/1/stdout?follow=true")
        theirs = [await listen(path, "eve's reader") for path in paths]
        theirs += [await talk("/calls", "eve's reader"), await talk("/link", "eve's worker")]
        others = [await listen("/events", "reader"), await talk("/link", "worker")]
        for token in ids.values():
            await master.ask("POST", f"/tokens/{token}/revoke")
        async with asyncio.timeout(60):
            await asyncio.gather(*theirs)
        assert not any(other.done() for other in others)
        for other in others:
            other.cancel()


async def test_expired_token_is_refused_and_its_streams_end(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = (await master.ask("POST", "/tokens", json={"name": "eve", "role": "reader", "expires_s": 3600})).body
    master.tokens["eve"] = made["secret"]
    own, now = master.parts[Auth], time.time()
    async with master.stream("/events", "eve") as events:
        own.times.end_expired(now + 3000)
        assert (await master.get("/whoami", "eve"))["name"] == "eve"
        own.times.end_expired(now + 3700)
        async with asyncio.timeout(60):
            await _until_the_end(events)
    monkeypatch.setattr(auth.time, "time", lambda: now + 3700)
    assert await own.by_secret(made["secret"]) is None
    assert await own.by_secret(master.tokens["reader"])


async def test_streams_end_at_the_expiry_of_their_token() -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()
    times = TokenTimes(Mock(), ended.put_nowait)
    for _ in range(2):
        times.note_use("eve", "10.0.0.1", time.time() + 0.05)
        times.note_use("eve", "10.0.0.2", time.time() + 0.05)
        assert ended.empty()
        assert await asyncio.wait_for(ended.get(), 60) == "eve"
    times.note_use("for ever", "10.0.0.1", None)
    times.end_expired(time.time() + 1e9)
    assert ended.empty()


async def test_list_of_tokens_shows_the_last_use(master: Bench) -> None:
    made = (await master.ask("POST", "/tokens", json={"name": "eve", "role": "scraper"})).body
    assert (made["used_at"], made["used_from"], made["expires_at"]) == (None, "", None)
    master.tokens["eve"] = made["secret"]
    assert (await master.ask("GET", "//metrics", "eve")).status == 200
    listed = {token["id"]: token for token in (await master.get("/tokens"))["items"]}
    assert listed[made["id"]]["used_from"] == "127.0.0.1"
    assert listed[made["id"]]["used_at"] >= made["created_at"]


async def test_audit_log_names_user_and_action(master: Bench) -> None:
    job = await master.submit("user")
    await master.get(f"/jobs/{job}", "user")
    await master.ask("POST", f"/jobs/{job}/cancel", "admin")
    assert (await master.ask("POST", f"/jobs/{job}/cancel", "reader")).status == 403
    found = (await master.get("/audit-log"))["items"][:2]
    assert [(one["who"], one["did"], one["on"]) for one in found] == [
        ("the-admin", "cancel_job", str(job)),
        ("the-user", "submit_job", str(job)),
    ]
    assert {one["address"] for one in found} == {"127.0.0.1"}
    first = await master.get("/audit-log?who=the-user&limit=1")
    assert [one["did"] for one in first["items"]] == ["submit_job"]


async def test_audit_log_has_no_read_requests(master: Bench) -> None:
    await master.ask("HEAD", f"/files/{'0' * 64}", "reader")
    await master.ask("HEAD", "/jobs", "reader")
    assert (await master.get("/audit-log?who=the-reader"))["items"] == []


async def test_audit_log_entry_is_in_the_commit_of_its_step(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def note_separately(action: AuditedAction) -> None:
        raise AssertionError(f"{action.did} was noted in a transaction of its own")

    monkeypatch.setattr(master.parts[Store].audit_log, "note", note_separately)
    job = await master.submit("user")
    await master.ask("POST", f"/jobs/{job}/cancel", "user")
    assert (await master.ask("POST", f"/jobs/{job}/pause", "user")).status == 409
    found = (await master.get("/audit-log?who=the-user"))["items"]
    assert [(one["did"], one["on"]) for one in found] == [("cancel_job", str(job)), ("submit_job", str(job))]


async def test_old_entries_leave_the_audit_log(master: Bench) -> None:
    log = master.parts[Store].audit_log
    first = AuditedAction(1.0, "x", "user", token="", address="", did="first", on="", forgets_before=0.0)
    await log.note(first)
    await log.note(replace(first, at=12.0, did="second", forgets_before=2.0))
    assert [one.did for one in (await log.page(who="x")).items] == ["second"]


async def test_old_audit_log_entries_are_deleted_in_small_batches(master: Bench) -> None:
    log = master.parts[Store].audit_log
    action = AuditedAction(1.0, "x", "user", token="", address="", did="old", on="", forgets_before=0.0)
    for _ in range(102):
        await log.note(action)
    for left in (2, 0):
        await log.note(replace(action, at=12.0, did="new", forgets_before=2.0))
        old = [one for one in (await log.page(who="x", limit=200)).items if one.did == "old"]
        assert len(old) == left


async def _until_the_end(content: aiohttp.StreamReader) -> None:
    with suppress(aiohttp.ClientError):
        while await content.readany():
            pass


async def _until_closed(socket: aiohttp.ClientWebSocketResponse) -> None:
    async for _ in socket:
        pass


async def test_token_revoked_during_its_lookup_is_not_cached(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    auth, made = master.parts[Auth], await master.parts[Auth].create("eve", "reader")
    look_up = master.parts[Store].tokens.by_hash

    async def slow_look_up(key: str) -> object:
        found = await look_up(key)
        await auth.revoke(made.id)
        return found

    monkeypatch.setattr(master.parts[Store].tokens, "by_hash", slow_look_up)
    assert await auth.by_secret(made.secret)  # it was valid when the lookup began
    monkeypatch.undo()
    assert await auth.by_secret(made.secret) is None


async def test_rate_limit_of_wrong_tokens_does_not_affect_valid_ones(
    master: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "time", SimpleNamespace(monotonic=lambda: 1000.0))  # no time passes
    await master.get("/whoami")
    wrong = {"Authorization": "Bearer ll_00000000_wrong"}
    statuses = [(await master.ask("GET", "/jobs", None, headers=wrong)).status for _ in range(150)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    refused = await master.ask("GET", "/jobs", None, headers=wrong)
    assert int(refused.headers["Retry-After"]) > 0
    made = await master.parts[Auth].create("who was never here", "user")
    right = {"Authorization": f"Bearer {made.secret}"}
    assert (await master.ask("GET", "/jobs", None, headers=right)).status == 200, (
        "clients behind a proxy share one address"
    )


def test_buckets_refill_and_full_ones_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(buckets.time, "monotonic", lambda: now)
    monkeypatch.setattr(buckets.Buckets, "MOST", 2)
    failures = buckets.Buckets(burst=2, per_s=0.5)
    failures.spend("a")
    failures.spend("a")
    assert failures.level("a") < 1
    now += 2.0
    assert failures.level("a") >= 1
    failures.spend("a")
    failures.spend("b")
    failures.spend("c")
    assert failures.level("a") >= 1  # dropped


async def test_first_start_writes_tokens_for_this_user(tmp_path: Path) -> None:
    home, join = tmp_path / "master", tmp_path / "join" / "worker"
    join.parent.mkdir()
    async with running_master(home, worker_token_file=join) as master:
        for role in ("admin", "worker"):
            file = home / "tokens" / role
            master.tokens[role] = file.read_text().strip()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert (await master.get("/whoami", role))["role"] == role
        assert join.read_text() == (home / "tokens" / "worker").read_text()
        assert stat.S_IMODE((home / "tokens").stat().st_mode) == 0o700
    before = (home / "tokens" / "admin").read_text()
    (home / "tokens" / "worker").write_text("ll_from_another_database")
    async with running_master(home) as master:
        assert (home / "tokens" / "admin").read_text() == before
        master.tokens["worker"] = (home / "tokens" / "worker").read_text().strip()
        assert (await master.get("/whoami", "worker"))["role"] == "worker"


async def test_master_without_tokens_serves_only_local_programs(tmp_path: Path) -> None:
    async with running_master(tmp_path / "master", tokens=False) as master:
        assert (await master.get("/whoami", None))["role"] == "admin"
        for foreign in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Host": "[x"}, {"Host": ""}):
            assert (await master.ask("POST", "/jobs/1/cancel", None, headers=foreign)).status == 403
        own = {"Origin": master.url}
        assert (await master.ask("GET", "/whoami", None, headers=own)).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org"])
def test_master_without_tokens_refuses_a_public_address(host: str) -> None:
    with pytest.raises(LooplineError, match="without tokens"):
        MasterSettings.load(host=host, tokens=False)
    MasterSettings.load(host=host)
    MasterSettings.load(host="localhost", tokens=False)


async def test_tokens_are_checked_concurrently(master: Bench) -> None:
    answers = await asyncio.gather(*(master.ask("GET", "/whoami", role) for role in auth.ALL * 5))
    assert [answer.body["role"] for answer in answers] == list(auth.ALL * 5)
