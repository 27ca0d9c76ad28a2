"""Wake-on-LAN as NetworkManager sets it, against python-dbusmock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loopline_shared.protocol.power import Armed, WakeFacts
from loopline_worker.power import network_manager
from loopline_worker.power.wake_facts import with_setting
from loopline_worker.presence.waiting.in_asyncio import run
from tests.worker.presence.test_buses import Service, service
from tests.worker.presence.witnesses import MOCK

pytest.importorskip("jeepney")
NAME, PATH = "org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager"
DEVICE, ACTIVE, PROFILE = f"{PATH}/Devices/1", f"{PATH}/ActiveConnection/1", f"{PATH}/Settings/1"


@asynccontextmanager
async def manager(monkeypatch: pytest.MonkeyPatch, setting: str) -> AsyncIterator[Service]:
    """Start a NetworkManager with one card, eth0, whose profile has this code for its Wake-on-LAN."""
    async with service(monkeypatch, NAME, PATH, "--system", NAME, PATH, NAME) as network:
        found = f"if args[0] != 'eth0': raise dbus.exceptions.DBusException('none', name='{NAME}.UnknownDevice')\n"
        await network.does(
            "AddMethod", "sssss", NAME, "GetDeviceByIpIface", "s", "o", f"{found}ret = dbus.ObjectPath('{DEVICE}')"
        )
        for path, interface, properties in (
            (DEVICE, f"{NAME}.Device", {"ActiveConnection": ("o", ACTIVE)}),
            (ACTIVE, f"{NAME}.Connection.Active", {"Connection": ("o", PROFILE)}),
            (PROFILE, f"{NAME}.Settings.Connection", {}),
        ):
            await network.does("AddObject", "ssa{sv}a(ssss)", path, interface, properties, [])
        settings = f"ret = dbus.Dictionary({{'802-3-ethernet': {setting}}}, signature='sa{{sv}}')"
        interface = f"{NAME}.Settings.Connection"
        more = ("sssss", interface, "GetSettings", "", "a{sa{sv}}", settings)
        await run(network._bus.ask(NAME, PROFILE, MOCK, "AddMethod", *more))
        yield network


@pytest.mark.parametrize(
    ("flags", "armed"),
    [("0x40", Armed.YES), ("0x44", Armed.YES), ("0", Armed.NO), ("0x1", Armed.UNKNOWN), ("0x8000", Armed.UNKNOWN)],
)
async def test_card_is_armed_as_its_profile_says(monkeypatch: pytest.MonkeyPatch, flags: str, armed: Armed) -> None:
    async with manager(monkeypatch, f"{{'wake-on-lan': dbus.UInt32({flags})}}"):
        assert await run(network_manager.armed("eth0")) is armed
        assert await run(network_manager.armed("eth1")) is Armed.UNKNOWN, "it does not manage that card"


async def test_profile_without_the_setting_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with manager(monkeypatch, "dbus.Dictionary({}, signature='sv')"):
        assert await run(network_manager.armed("eth0")) is Armed.UNKNOWN


async def test_computer_without_network_manager_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(monkeypatch, "org.example", "/", "--system", "org.example", "/", "org.example"):
        assert await run(network_manager.armed("eth0")) is Armed.UNKNOWN


@pytest.mark.parametrize("kernel", list(Armed))
def test_kernel_knows_better_for_suspend(kernel: Armed) -> None:
    facts = with_setting(WakeFacts("eth0", "52:54:00:12:34:56", from_suspend=kernel), Armed.YES)
    assert facts.from_suspend is (Armed.YES if kernel is Armed.UNKNOWN else kernel)
    assert facts.from_off is Armed.YES
