"""Behind a configured proxy each client has its own address, and no other client can claim one."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopline_master.admission import buckets
from loopline_master.http.web_app import client_of
from tests.api.bench import Bench, running_master

WRONG = {"Authorization": "Bearer ll_00000000_wrong"}


async def tries(master: Bench, client: str, count: int) -> list[int]:
    headers = WRONG | {"X-Forwarded-For": client}
    return [(await master.ask("GET", "/jobs", None, headers=headers)).status for _ in range(count)]


async def logged(master: Bench, client: str) -> str:
    made = await master.ask(
        "POST", "/tokens", json={"name": "x", "role": "reader"}, headers={"X-Forwarded-For": client}
    )
    assert made.status == 201, made.content
    return str((await master.get("/audit-log"))["items"][0]["address"])


async def test_wrong_tokens_count_for_the_client_behind_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    async with running_master(tmp_path, tls="off", proxy=["127.0.0.1"]) as master:
        assert (await tries(master, "6.6.6.6", 101))[-1] == 429
        assert await tries(master, "7.7.7.7", 1) == [401]
        assert await logged(master, "9.9.9.9, 7.7.7.7") == "7.7.7.7", "earlier addresses were written by the client"


async def test_header_is_not_believed_without_a_proxy(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        assert await logged(master, "7.7.7.7") == "127.0.0.1"


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        (["7.7.7.7"], "7.7.7.7"),
        (["7.7.7.7:4711"], "7.7.7.7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["2001:db8::7"], "2001:db8::7"),
        (["::ffff:7.7.7.7"], "7.7.7.7"),
        (["1.2.3.4, 7.7.7.7, 10.0.0.1"], "7.7.7.7"),
        (["1.2.3.4", "7.7.7.7,10.0.0.1"], "7.7.7.7"),
        (["10.0.0.1"], "10.0.0.1"),
        (["7.7.7.7, unknown"], None),
        ([""], None),
    ],
)
def test_client_is_the_last_address_that_is_no_proxy(headers: list[str], client: str | None) -> None:
    found = client_of(headers, {ip_address("10.0.0.1")})
    assert found == (client if client is None else ip_address(client))
