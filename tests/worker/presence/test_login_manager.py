"""logind's locks and announcements, against python-dbusmock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.protocol.power import SleepKind
from loopline_worker.power import login_manager
from loopline_worker.power.login_manager import SleepWatch
from loopline_worker.presence import logind as logind_probe
from loopline_worker.presence.waiting.in_asyncio import run
from tests.worker.bench import until
from tests.worker.presence.loops import running
from tests.worker.presence.test_buses import LOGIND, MANAGER, ROOT, Service, service, session, until_told

pytest.importorskip("jeepney")
DELAY = ("sleep:shutdown", "Loopline", "delay")


async def locks(logind: Service) -> list[tuple[str, str, str]]:
    """Return the locks: prevented actions, holder and mode."""
    listed = await run(logind._bus.ask(LOGIND, ROOT, MANAGER, "ListInhibitors"))
    return [(what, who, mode) for what, who, _, mode, _, _ in listed]


async def until_locked(logind: Service, *held: tuple[str, str, str]) -> None:
    async def are_held() -> bool:
        return sorted(await locks(logind)) == sorted(held)

    await until_told(are_held)


@asynccontextmanager
async def mock_logind(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    async with service(monkeypatch, LOGIND, ROOT, "--system", "--template", "logind") as mock:
        yield mock


async def emit(logind: Service, signal: str, is_ahead: bool) -> None:
    await logind.does("EmitSignal", "sssav", MANAGER, signal, "b", [("b", is_ahead)])


@pytest.mark.parametrize(
    ("signal", "kind"), [("PrepareForSleep", SleepKind.SUSPEND), ("PrepareForShutdown", SleepKind.OFF)]
)
async def test_sleep_is_delayed_until_the_lock_is_released(
    monkeypatch: pytest.MonkeyPatch, signal: str, kind: SleepKind
) -> None:
    asleep, returned = list[SleepKind](), list[bool]()
    watch = SleepWatch(asleep.append, lambda: returned.append(True))
    async with mock_logind(monkeypatch) as logind, running("asyncio", watch.watch()):
        await until_locked(logind, DELAY)
        await emit(logind, signal, True)
        await until(lambda: asleep == [kind])
        assert await locks(logind) == [DELAY], "the watch does not release it by itself"
        watch.release()
        await until_locked(logind)
        assert not returned
        await emit(logind, signal, False)
        await until(lambda: returned)
        await until_locked(logind, DELAY)
        watch.release()


async def test_return_is_reported_only_after_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    asleep, returned = list[SleepKind](), list[bool]()
    watch = SleepWatch(asleep.append, lambda: returned.append(True))
    async with mock_logind(monkeypatch) as logind, running("asyncio", watch.watch()):
        await until_locked(logind, DELAY)
        await emit(logind, "PrepareForSleep", False)
        await emit(logind, "PrepareForSleep", True)
        await until(lambda: asleep)
        assert not returned
        watch.release()


async def test_announcement_expires_if_logind_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_manager, "CALLED_OFF_S", 0.1)
    returned = list[bool]()
    watch = SleepWatch(lambda kind: watch.release(), lambda: returned.append(True))
    async with mock_logind(monkeypatch) as logind, running("asyncio", watch.watch()):
        await until_locked(logind, DELAY)
        await emit(logind, "PrepareForSleep", True)
        await until(lambda: returned)
        await until_locked(logind, DELAY)
        watch.release()


async def test_bus_that_is_lost_during_a_sleep_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_manager, "CALLED_OFF_S", 0.1)
    monkeypatch.setattr(login_manager, "_AGAIN_S", 0.05)
    asleep, returned = list[SleepKind](), list[bool]()
    watch = SleepWatch(asleep.append, lambda: returned.append(True))
    async with AsyncExitStack() as around:
        async with mock_logind(monkeypatch) as logind:
            await around.enter_async_context(running("asyncio", watch.watch()))
            await until_locked(logind, DELAY)
            await emit(logind, "PrepareForSleep", True)
            await until(lambda: asleep)
        async with mock_logind(monkeypatch) as logind:
            await until_locked(logind, DELAY)
            assert returned
            watch.release()


async def test_permission_to_suspend_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SleepWatch(lambda kind: None, lambda: None)
    async with mock_logind(monkeypatch) as logind, running("asyncio", watch.watch()):
        await until(lambda: watch.can_suspend)
        await logind.does("AddMethod", "sssss", MANAGER, "CanSuspend", "", "s", "ret = 'challenge'")
        await emit(logind, "PrepareForSleep", False)
        await until(lambda: not watch.can_suspend)
        watch.release()


async def test_watch_ends_where_there_is_no_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
    async with asyncio.timeout(60):
        await run(SleepWatch(lambda kind: None, lambda: None).watch())


async def test_computer_stays_awake_for_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mock_logind(monkeypatch) as logind:
        others = await run(login_manager.inhibit("idle", "a task runs"))  # the mock service names no process of ours
        with pytest.raises(LooplineError, match="another worker of this computer runs a task"):
            await run(login_manager.suspend())
        os.close(others)
        await until_locked(logind)
        await run(login_manager.suspend())


async def test_lock_is_not_inherited_by_tasks_and_is_gone_when_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mock_logind(monkeypatch) as logind:
        lock = await run(login_manager.inhibit("idle", "a task runs"))
        assert not os.get_inheritable(lock)
        assert await locks(logind) == [("idle", "Loopline", "block")]
        os.close(lock)
        await until_locked(logind)


async def test_suspend_is_left_to_logind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mock_logind(monkeypatch) as logind:
        await run(login_manager.suspend())
        assert len(await logind.does("GetMethodCalls", "s", "Suspend")) == 1


async def test_own_locks_are_no_sign_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mock_logind(monkeypatch) as logind:
        own = await run(login_manager.inhibit("idle", "a task runs"))
        assert await run(logind_probe._inhibitors(logind._bus)) == {}
        monkeypatch.setattr(login_manager, "OURS", "a film")
        film = await run(login_manager.inhibit("idle", "it plays"))
        assert await run(logind_probe._inhibitors(logind._bus)) == {1000: "a film"}
        os.close(own)
        os.close(film)


@pytest.mark.parametrize(
    ("changes", "is_shown"),
    [({}, True), ({"Class": "user"}, False), ({"Active": False}, False), ({"IdleHint": False}, False)],
)
def test_login_screen_is_an_idle_greeter_in_front(changes: dict[str, object], is_shown: bool) -> None:
    probe = logind_probe.Logind()
    probe._sessions = {"c1": session(**{"Class": "greeter", "IdleHint": True, **changes})}
    assert probe.is_at_greeter is is_shown


def test_login_screen_that_is_no_longer_idle_has_got_input() -> None:
    probe = logind_probe.Logind()
    probe._empty_since = 1000.0

    def idle_s(is_idle: bool, now: float) -> float | None:
        return probe.judge({"c1": session(Class="greeter", IdleHint=is_idle)}, now).idle_s

    assert [idle_s(False, 1100.0), idle_s(True, 1300.0)] == [100.0, 300.0], "after a boot nobody has used it yet"
    assert [idle_s(False, 1400.0), idle_s(False, 1410.0)] == [0.0, 0.0]
    assert idle_s(True, 1710.0) == 300.0
