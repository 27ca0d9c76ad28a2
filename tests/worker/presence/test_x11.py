"""X11: a real server without a screen, and real mouse movements."""

import struct
from pathlib import Path

import pytest

from loopline_worker.presence import x11
from loopline_worker.presence.x11 import X11, XServer, _cookie
from tests.worker.bench import until
from tests.worker.presence.witnesses import move_mouse, only_display, x_server


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the servers of a busy computer."""
    monkeypatch.setattr(x11, "_PATIENCE_S", 60.0)


async def test_mouse_movement_is_detected(tmp_path: Path) -> None:
    with x_server() as display:
        probe = only_display(display, tmp_path)
        await until(lambda: (probe.look().idle_s or 0) > 0.2)
        before = probe.look()
        assert before.sees_desktop
        move_mouse(display, 20)
        after = probe.look()
        assert after.idle_s is not None
        await until(lambda: (probe.look().idle_s or 0) > (before.idle_s or 0))  # idle time grows from there
        probe.close()


async def test_ended_server_does_not_break_the_probe(tmp_path: Path) -> None:
    with x_server() as display:
        probe = only_display(display, tmp_path)
        assert probe.look().idle_s is not None
    assert probe.look().idle_s is None
    assert probe.look().detail


def test_x11_does_not_suffice_under_wayland(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with x_server() as display:
        for more in ({"WAYLAND_DISPLAY": "wayland-0"}, {"XDG_SESSION_TYPE": "wayland"}):
            reading = only_display(display | more, tmp_path).look()
            assert reading.idle_s is not None
            assert not reading.sees_desktop
        monkeypatch.setattr(x11, "_MARK_OF_XWAYLAND", b"MIT-SCREEN-SAVER")
        assert not only_display(display, tmp_path).look().sees_desktop


def test_compositor_is_found_by_its_socket(tmp_path: Path) -> None:
    with x_server() as display:
        assert only_display(display, tmp_path).look().sees_desktop
        (tmp_path / "listening").write_text("0: 2 0 10000 1 1 77 /run/user/1000/wayland-0\n")
        reading = X11(display, tmp_path, tmp_path / "listening").look()
        assert reading.idle_s is not None
        assert not reading.sees_desktop
        assert not X11(display, tmp_path, tmp_path / "nothing").look().sees_desktop


async def test_all_servers_must_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with x_server() as one, x_server() as other:
        for display in (one, other):
            (tmp_path / f"X{display['DISPLAY'][1:]}").touch()
        (tmp_path / "X9876543").touch()  # left behind
        probe = only_display({}, tmp_path)
        await until(lambda: (probe.look().idle_s or 0) > 0.1)
        assert probe.look().sees_desktop
        assert list(probe._servers) == sorted((display["DISPLAY"][1:] for display in (one, other)), key=int)
        idle = dict.fromkeys(probe._servers, 500.0)
        monkeypatch.setattr(XServer, "idle_s", lambda server: idle[server.display])
        for number in idle:
            idle[number] = 3.0
            assert probe.look().idle_s == 3.0
            idle[number] = 500.0
        probe._servers[one["DISPLAY"][1:]].close()
        monkeypatch.undo()
        reading = probe.look()
        assert reading.idle_s is not None
        assert not reading.sees_desktop
        probe.close()


def test_displays_are_ordered_by_number(tmp_path: Path) -> None:
    for name in ("X10", "X2", "X0-lock"):
        (tmp_path / name).touch()
    listening = "0: 2 0 10000 1 1 77 @/tmp/.X11-unix/X3\n"
    assert X11({"DISPLAY": ":1.0"}, tmp_path)._displays(listening) == ["1", "2", "3", "10"]


def test_display_of_another_computer_is_ignored(tmp_path: Path) -> None:
    reading = only_display({"DISPLAY": "localhost:10.0"}, tmp_path).look()
    assert reading.detail == "DISPLAY 'localhost:10.0' is not on this computer"


def test_no_display_gives_no_reading(tmp_path: Path) -> None:
    assert only_display({}, tmp_path).look().detail == "there is no X server"


def entry(number: bytes, cookie: bytes, name: bytes = b"MIT-MAGIC-COOKIE-1") -> bytes:
    return struct.pack(">H", 256) + b"".join(struct.pack(">H", len(f)) + f for f in (b"host", number, name, cookie))


@pytest.mark.parametrize(
    ("content", "cookie"),
    [
        (entry(b"1", b"one") + entry(b"0", b"zero"), b"zero"),
        (entry(b"0", b"x", b"OTHER") + entry(b"", b"any"), b"any"),
        (entry(b"1", b"one"), b""),
        (b"", b""),
        (entry(b"1", b"one")[:-20], b""),
    ],
)
def test_cookie_of_the_display_is_found(tmp_path: Path, content: bytes, cookie: bytes) -> None:
    file = tmp_path / "authority"
    file.write_bytes(content)
    assert _cookie(file, "0") == cookie
    assert _cookie(tmp_path / "nothing", "0") == b""
