"""A Wayland desktop, against the other side of ext-idle-notify-v1 as its specification has it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopline_worker.presence import wayland
from loopline_worker.presence.wayland import Wayland
from tests.worker.bench import until
from tests.worker.presence.loops import in_both_loops, running

OFFERS = {11: b"wl_compositor", 12: b"wl_seat", 13: b"wl_seat", 14: b"ext_idle_notifier_v1"}


def event(source: int, kind: int, body: bytes = b"") -> bytes:
    return struct.pack("=II", source, (8 + len(body)) << 16 | kind) + body


def text(word: bytes) -> bytes:
    return struct.pack("=I", len(word) + 1) + word + bytes(4 - len(word) % 4)


class Compositor:
    """Decodes requests by the numbers of the specification, and answers those of this client."""

    def __init__(self) -> None:
        self.offers = dict(OFFERS)
        self.bound: dict[int, bytes] = {}  # by the client's object id
        self.notification = 0
        self.timeout_ms = 0
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer, registry = writer, 0
        while head := await reader.read(8):
            target, size_and_request = struct.unpack("=II", head)
            body = await reader.readexactly((size_and_request >> 16) - 8)
            match target, size_and_request & 0xFFFF:
                case 1, 1:  # wl_display.get_registry
                    (registry,) = struct.unpack("=I", body)
                    for number, name in self.offers.items():
                        writer.write(
                            event(registry, 0, struct.pack("=I", number) + text(name) + struct.pack("=I", 1))
                        )
                case 1, 0:  # wl_display.sync
                    writer.write(event(*struct.unpack("=I", body), 0, bytes(4)))
                case at, 0 if at == registry:  # wl_registry.bind
                    number, length = struct.unpack_from("=II", body)
                    assert body[8 : 8 + length - 1] == self.offers[number]
                    self.bound[struct.unpack("=I", body[-4:])[0]] = self.offers[number]
                case at, 1 if self.bound.get(at) == b"ext_idle_notifier_v1":  # get_idle_notification
                    self.notification, self.timeout_ms, seat = struct.unpack("=III", body)
                    assert self.bound[seat] == b"wl_seat"
                case unknown:
                    raise AssertionError(unknown)

    def says(self, *events: bytes) -> None:
        assert self.writer
        self.writer.write(b"".join(events))


@pytest.fixture
async def compositor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Compositor]:
    monkeypatch.setattr(wayland, "_AGAIN_S", 0.02)
    monkeypatch.setattr(wayland, "_ANSWER_WITHIN_S", 60.0)
    compositor = Compositor()
    server = await asyncio.start_unix_server(compositor.serve, tmp_path / "wayland-1")
    yield compositor
    if compositor.writer:
        compositor.writer.close()
    server.close()


@in_both_loops
async def test_compositor_reports_idleness_and_the_next_input(
    compositor: Compositor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(wayland, "_AGAIN_S", 3600.0)  # the complaint stays
    probe, inputs = Wayland({"XDG_RUNTIME_DIR": str(tmp_path)}), list[bool]()
    async with running(loop, probe.listen(lambda: inputs.append(True))):
        await until(lambda: compositor.notification)
        await until(lambda: probe.look().idle_s == 0)
        assert (compositor.timeout_ms, probe.look().sees_desktop) == (1000, True)
        compositor.says(event(compositor.notification, 0))
        await until(lambda: (probe.look().idle_s or 0) >= 1)
        assert not inputs
        idled, resumed = event(compositor.notification, 0), event(compositor.notification, 1)
        compositor.says(resumed)
        await until(lambda: inputs)
        assert probe.look().idle_s == 0
        compositor.says(idled, resumed)  # in one part
        await until(lambda: len(inputs) == 2)
        assert probe.look().idle_s == 0
        compositor.says(event(1, 0, struct.pack("=II", 6, 1) + text(b"no seat")))
        await until(lambda: "no seat" in probe.look().detail)
        assert probe.look().idle_s is None, "no reading after the end"
        assert len(inputs) == 2


@in_both_loops
async def test_ended_compositor_is_not_used_and_a_new_one_is(
    compositor: Compositor, tmp_path: Path, loop: str
) -> None:
    probe = Wayland({"XDG_RUNTIME_DIR": str(tmp_path)})
    async with running(loop, probe.listen(lambda: None)):
        await until(lambda: probe.look().idle_s == 0)
        assert compositor.writer
        before, compositor.notification = compositor.writer, 0
        before.close()
        await until(lambda: "closed the connection" in probe.look().detail or compositor.notification)
        await until(lambda: compositor.notification and probe.look().idle_s == 0)
        assert compositor.writer is not before


@in_both_loops
async def test_compositor_without_the_protocol_is_not_used(compositor: Compositor, tmp_path: Path, loop: str) -> None:
    del compositor.offers[14]
    probe = Wayland({"XDG_RUNTIME_DIR": str(tmp_path), "WAYLAND_DISPLAY": "wayland-1"})
    async with running(loop, probe.listen(lambda: None)):
        await until(lambda: "no ext_idle_notifier_v1" in probe.look().detail)
        assert probe.look().idle_s is None


@in_both_loops
async def test_compositor_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(wayland, "_ANSWER_WITHIN_S", 0.05)
    probe = Wayland({"XDG_RUNTIME_DIR": str(tmp_path)})
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "wayland-1"))
        mute.listen()
        async with running(loop, probe.listen(lambda: None)):
            await until(lambda: probe.look().detail == "TimeoutError")
