"""Signing in from a browser: only this master's own page can use the cookie for changes."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from loopline_master.admission import buckets
from loopline_master.http import sessions
from loopline_master.http.sessions import COOKIE
from tests.api.bench import Answer, Bench, running_master


async def sign_in(master: Bench, token: str, **headers: str) -> Answer:
    return await master.ask("POST", "/session", None, json={"token": token}, headers=headers)


async def visitor(master: Bench, role: str = "user") -> dict[str, str]:
    """Return the header that a signed-in browser sends."""
    answer = await sign_in(master, master.tokens[role])
    master.http.cookie_jar.clear()
    assert answer.status == 200, answer.body
    return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


async def test_sign_in_sets_a_cookie_that_scripts_cannot_read(master: Bench) -> None:
    answer = await sign_in(master, master.tokens["user"])
    assert answer.body == await master.get("/whoami", "user")
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie, "over plain HTTP no browser would send a secure cookie"
    assert master.tokens["user"] not in cookie
    assert answer.headers["Cache-Control"] == "no-store"
    through_tls = await sign_in(master, master.tokens["user"], Origin=f"https://127.0.0.1:{master.port}")
    assert "Secure" in through_tls.headers["Set-Cookie"].split("; ")


async def test_cookie_has_the_user_and_role_of_its_token(master: Bench) -> None:
    cookie = await visitor(master, "reader")
    assert (await master.get("/whoami", None, headers=cookie))["name"] == "the-reader"
    refused = await master.ask(
        "POST", "/jobs", None, headers={**cookie, "Origin": master.url}, json={"command": ["a"]}
    )
    assert (refused.status, refused.body["code"]) == (403, "forbidden")
    both = {**cookie, **master.headers("admin")}
    assert (await master.get("/whoami", None, headers=both))["role"] == "admin", (
        "a token takes precedence over a cookie"
    )


async def test_browser_is_admitted_by_its_cookie_alone(master: Bench) -> None:
    """Uses a cookie jar like a browser: sent to this address and removed by signing out."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        bench = Bench(master.url, master.parts, browser)
        assert (await bench.ask("GET", "/whoami", None)).status == 401
        await sign_in(bench, master.tokens["user"])
        assert (await bench.get("/whoami", None))["name"] == "the-user"
        async with bench.http.get(bench.address("/events")) as events:
            assert events.status == 200
        assert (await bench.ask("DELETE", "/session", None)).status == 204
        assert (await bench.ask("GET", "/whoami", None)).status == 401


@pytest.mark.parametrize(
    "origin",
    [None, "null", "", "http://evil.example", "http://127.0.0.1:1", "http://localhost:{port}", "ftp://{host}"],
)
async def test_other_sites_cannot_make_changes_with_the_cookie(master: Bench, origin: str | None) -> None:
    cookie, job = await visitor(master), await master.submit("user")
    given = {} if origin is None else {"Origin": origin.format(port=master.port, host=f"127.0.0.1:{master.port}")}
    foreign: dict[str, Any] = {"headers": {**cookie, **given}}
    for method, path in (("POST", f"/jobs/{job}/cancel"), ("PUT", f"/files/{'0' * 64}"), ("POST", "/jobs")):
        answer = await master.ask(method, path, None, **foreign)
        assert (answer.status, answer.body["code"]) == (403, "foreign_page"), (method, path)
    assert (await master.ask("GET", f"/jobs/{job}", None, **foreign)).status == 200
    own = {**cookie, "Origin": master.url}
    assert (await master.ask("POST", f"/jobs/{job}/cancel", None, headers=own)).status == 200


async def test_other_sites_can_neither_open_links_nor_sign_in(master: Bench) -> None:
    cookie = await visitor(master, "admin")
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await master.http.ws_connect(master.address("/link"), headers={**cookie, "Origin": "http://evil.example"})
    assert caught.value.status == 403
    answer = await sign_in(master, master.tokens["admin"], Origin="http://evil.example")
    assert (answer.status, answer.body["code"]) == (403, "foreign_page")


async def test_wrong_tokens_at_sign_in_are_rate_limited(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "time", SimpleNamespace(monotonic=lambda: 1000.0))  # no time passes
    await master.get("/whoami")
    answers = [await sign_in(master, "ll_00000000_wrong") for _ in range(60)]
    assert (answers[0].status, answers[0].body["code"]) == (401, "wrong_token")
    assert "Set-Cookie" not in answers[0].headers
    wrong = {"Authorization": "Bearer ll_00000000_wrong"}
    statuses = [(await master.ask("GET", "/jobs", None, headers=wrong)).status for _ in range(80)]
    assert (statuses[0], statuses[-1]) == (401, 429)
    assert (await sign_in(master, "ll_00000000_wrong")).status == 429
    assert (await sign_in(master, master.tokens["admin"])).status == 200, "a known token is admitted"


async def test_malformed_tokens_and_workers_cannot_sign_in(master: Bench) -> None:
    for token in ("", " ", "\ud7ff", "ll_x_y"):
        assert (await sign_in(master, token)).status == 401
    assert (await sign_in(master, "x" * 201)).status == 422
    answer = await sign_in(master, master.tokens["worker"])
    assert (answer.status, answer.body["code"]) == (403, "forbidden")


async def test_session_ends_with_its_token_or_at_its_expiry(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = (await master.ask("POST", "/tokens", json={"name": "eve", "role": "user"})).body
    master.tokens["eve"] = made["secret"]
    cookie, other = await visitor(master, "eve"), await visitor(master, "user")
    await master.ask("POST", f"/tokens/{made['id']}/revoke")
    gone = await master.ask("GET", "/whoami", None, headers=cookie)
    assert (gone.status, gone.body["code"]) == (401, "signed_out")
    assert (await master.ask("GET", "/whoami", None, headers=other)).status == 200
    begun = sessions.time.time()
    monkeypatch.setattr(sessions.time, "time", lambda: begun + sessions.LASTS_S + 1)
    assert (await master.ask("GET", "/whoami", None, headers=other)).status == 401


async def test_forged_cookie_is_refused(master: Bench) -> None:
    value = (await visitor(master))["Cookie"].partition("=")[2]
    token_hash, until, seal = value.split(".")
    admins = sessions.Sessions(b"another key").cookie(token_hash)
    longer = f"{token_hash}.{int(until) + 1}.{seal}"
    for made_up in (admins, longer, value[:-1], value + "0", "", ".", "..", "a.b.c", "\u00fc", f"{until}.{seal}"):
        answer = await master.ask("GET", "/whoami", None, headers={"Cookie": f"{COOKIE}={made_up}"})
        assert answer.status == 401, made_up


async def test_sessions_survive_a_restart_and_are_bound_to_their_master(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        cookie = await visitor(master)
    file = tmp_path / "tokens" / "session-key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert re.fullmatch("[0-9a-f]{64}\n", file.read_text())
    async with running_master(tmp_path) as master:
        assert (await master.ask("GET", "/whoami", None, headers=cookie)).status == 200
    file.write_text("spoilt")
    async with running_master(tmp_path) as master:
        assert (await master.ask("GET", "/whoami", None, headers=cookie)).status == 401


async def test_master_without_tokens_needs_no_cookie(tmp_path: Path) -> None:
    async with running_master(tmp_path, tokens=False) as master:
        answer = await sign_in(master, "")
        assert (answer.status, answer.body["name"], "Set-Cookie" in answer.headers) == (200, "local", False)
        assert (await sign_in(master, "", Origin="http://evil.example")).status == 403


async def test_session_of_an_unknown_visitor_is_null(master: Bench) -> None:
    """The page requests it first, and browsers log each 401 in their console."""
    assert await master.get("/session", None) is None
    cookie = await visitor(master, "reader")
    assert await master.get("/session", None, headers=cookie) == await master.get("/whoami", "reader")
    spoiled = {"Cookie": cookie["Cookie"] + "0"}
    assert await master.get("/session", None, headers=spoiled) is None
    assert await master.get("/session", "worker") is None, "a worker may not view the page"
