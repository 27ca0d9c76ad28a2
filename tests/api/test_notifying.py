"""Notifications: slow receivers do not delay other users, and private addresses are not called."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from loopline_master.commands import command
from loopline_master.notify import notifier as notifying
from loopline_master.notify import webhook
from loopline_master.notify.notifier import Notifier, SendingPlaces
from loopline_master.store import Store
from loopline_master.store.records import Due
from tests.api.bench import Bench, running_master, until, webhook_receiver


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "NOTIFY_LOOK_EVERY_S", 0.01)


@asynccontextmanager
async def receiver(heard: list[str], may_answer: asyncio.Event) -> AsyncIterator[str]:
    async def hear(request: web.Request) -> None:
        heard.append(request.path)
        await may_answer.wait()

    async with webhook_receiver(hear) as url:
        yield url


async def end_one(master: Bench, url: str, role: str = "admin") -> int:
    job = await master.submit(role, notify={"webhook": url})
    await master.ask("POST", f"/jobs/{job}/cancel")
    return job


async def test_slow_receiver_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "_WITHIN", aiohttp.ClientTimeout(total=600))
    open_, shut = asyncio.Event(), asyncio.Event()
    open_.set()
    slow_received: list[str] = []
    quick_received: list[str] = []
    async with (
        receiver(slow_received, shut) as slow,
        receiver(quick_received, open_) as quick,
        running_master(tmp_path, webhook_hosts=["127.0.0.0/8"]) as master,
    ):
        jobs = [await end_one(master, f"{slow}/{number}") for number in range(9)]
        await until(lambda: _are(slow_received, notifying.AT_ONCE_USER_EACH))
        quick_job = await end_one(master, quick)
        await until(lambda: _is_told(master, quick_job))
        assert len(slow_received) == notifying.AT_ONCE_USER_EACH
        shut.set()
        for job in jobs:
            await until(lambda job=job: _is_told(master, job))  # type: ignore[misc]
    assert sorted(slow_received) == [f"/{number}" for number in range(len(jobs))], "each notification is sent once"
    assert len(quick_received) == 1


async def test_silent_receivers_of_one_user_delay_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 webhooks that never answer, and one of another user at the same host."""
    monkeypatch.setattr(webhook, "_WITHIN", aiohttp.ClientTimeout(total=600))
    told = list[str]()

    async def hear(request: web.Request) -> None:
        told.append(request.path)
        if request.path != "/quick":
            await asyncio.Event().wait()

    async with webhook_receiver(hear) as url, running_master(tmp_path, webhook_hosts=["127.0.0.0/8"]) as master:
        for number in range(80):
            await end_one(master, f"{url}/{number}")
        await until(lambda: _are(told, notifying.AT_ONCE_USER_EACH))
        job = await end_one(master, f"{url}/quick", "user")
        await until(lambda: _is_told(master, job))
        assert len(told) == notifying.AT_ONCE_USER_EACH + 1


async def test_place_given_back_during_a_read_sends_no_notification_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, may_answer = list[str](), asyncio.Event()
    async with (
        receiver(heard, may_answer) as url,
        running_master(tmp_path, webhook_hosts=["127.0.0.0/8"]) as master,
    ):
        outbox, notifier = master.parts[Store].notifications, master.parts[Notifier]
        read_due = outbox.due

        async def give_places_back_meanwhile(*arguments: Any) -> list[Due]:
            found = await read_due(*arguments)
            monkeypatch.setattr(outbox, "due", read_due)
            may_answer.set()
            for job in jobs[: notifying.AT_ONCE_USER_EACH]:
                await until(lambda job=job: _is_told(master, job))  # type: ignore[misc]
            return found

        jobs = [await end_one(master, f"{url}/{number}") for number in range(3)]
        await until(lambda: _are(heard, notifying.AT_ONCE_USER_EACH))
        await until(lambda: _are(notifier._waiting, 1))
        monkeypatch.setattr(outbox, "due", give_places_back_meanwhile)
        outbox.came.set()
        await until(lambda: _is_told(master, jobs[2]))
        jobs.append(await end_one(master, f"{url}/3"))
        await until(lambda: _is_told(master, jobs[3]))
    assert sorted(heard) == [f"/{number}" for number in range(len(jobs))]


async def test_receiver_without_an_answer_is_retried_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "_WITHIN", aiohttp.ClientTimeout(sock_read=0.1))  # once a request is sent
    told, answers, ahead_s = list[str](), False, 0.0

    async def hear(request: web.Request) -> None:
        told.append(request.path)
        if not answers:
            await asyncio.sleep(600)

    async def has_failed(job: int) -> bool:
        return "not answered" in (await master.get(f"/jobs/{job}"))["notification"]

    async with webhook_receiver(hear) as url, running_master(tmp_path, webhook_hosts=["127.0.0.0/8"]) as master:
        notifier = master.parts[Notifier]
        clock = notifier._clock
        monkeypatch.setattr(notifier, "_clock", lambda: clock() + ahead_s)
        monkeypatch.setattr(notifying, "FIRST_REST_S", 3600.0)
        jobs = [await end_one(master, f"{url}/{number}") for number in range(6)]
        await until(lambda: has_failed(jobs[0]))
        await until(lambda: _is_postponed(master))
        assert len(told) == notifying.AT_ONCE_USER_EACH, "further notifications wait during the pause"
        monkeypatch.setattr(webhook, "_WITHIN", aiohttp.ClientTimeout(total=600))
        await notifier._webhooks.close()  # further ones are sent by another session, with this limit
        answers, ahead_s = True, 3601.0
        master.parts[Store].notifications.came.set()
        for job in jobs:
            await until(lambda job=job: _is_told(master, job))  # type: ignore[misc]


async def test_command_that_does_not_end_delays_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both users have the same command; only the slots of one user are blocked by it."""
    monkeypatch.setattr(command, "COMMAND_WITHIN_S", 600.0)
    script = "read -r all; case $all in *the-admin*) sleep 600;; esac"
    commands = {"tell": ["sh", "-c", script]}
    async with running_master(tmp_path, notify_commands=commands) as master:
        for _ in range(20):
            job = await master.submit(notify={"command": "tell"})
            await master.ask("POST", f"/jobs/{job}/cancel")
        job = await master.submit("user", notify={"command": "tell"})
        await master.ask("POST", f"/jobs/{job}/cancel")
        await until(lambda: _is_told(master, job))


def test_sending_places_are_limited_per_receiver_and_user() -> None:
    taken = SendingPlaces()
    assert [taken.occupy("here", "ann") for _ in range(3)] == [True, True, False]
    assert [taken.occupy("there", "ann") for _ in range(3)] == [True, True, False]
    assert not taken.occupy("elsewhere", "ann"), "one user has at most four"
    assert [taken.occupy("here", "bob"), taken.occupy("here", "bob"), taken.occupy("here", "cid")] == [
        True,
        True,
        False,
    ]
    taken.give_back("here", "ann")
    assert taken.occupy("here", "cid")
    others = [taken.occupy(f"host {number}", f"user {number}") for number in range(40)]
    assert sum(others) + 6 == notifying.AT_ONCE


def test_pauses_double_and_end_with_an_answer() -> None:
    taken, now = SendingPlaces(), 1000.0
    rests = []
    for _ in range(11):
        taken.note_silence("here", now)
        taken.note_silence("here", now + 1.0)
        until_ = taken.rests_until("here", now)
        assert until_ is not None
        rests.append(until_ - now)
        now = until_
    assert rests == [10.0 * 2**number for number in range(9)] + [3600.0, 3600.0]
    assert [taken.occupy("here", "ann"), taken.occupy("here", "bob")] == [True, False], (
        "a single notification probes the receiver"
    )
    taken.note_answer("here")
    assert taken.occupy("here", "bob")


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("::ffff:93.184.215.14", True),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::a00:1", False),
        ("2002:7f00:1::", False),
        ("::127.0.0.1", False),
        ("224.0.0.1", False),
    ],
)
def test_address_that_may_map_to_a_private_one_is_not_called(address: str, may: bool) -> None:
    assert webhook._PublicResolver([])._may_call(ipaddress.ip_address(address)) is may
    assert webhook._PublicResolver(["::/0", "0.0.0.0/0"])._may_call(ipaddress.ip_address(address)), (
        "settings can permit it"
    )


async def _is_postponed(master: Bench) -> bool:
    return await master.parts[Store].notifications.next_after(time.time() + 60.0) is not None


async def _are(heard: Sequence[object], count: int) -> bool:
    return len(heard) >= count


async def _is_told(master: Bench, job: int) -> bool:
    return (await master.get(f"/jobs/{job}"))["notification"] == "told"
