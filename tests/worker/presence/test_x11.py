"""X11: a real server without a screen, and a mouse moved for real."""

import struct
from pathlib import Path

import pytest

from tests.worker.bench import until
from tests.worker.presence.witnesses import move_mouse, x_server
from worker.presence.x11 import X11, _cookie


async def test_a_moved_mouse_is_seen() -> None:
    with x_server() as display:
        probe = X11(display)
        await until(lambda: (probe.look().idle_s or 0) > 0.2)
        before = probe.look()
        assert before.sees_desktop
        move_mouse(display, 20)
        after = probe.look()
        assert after.idle_s is not None
        await until(lambda: (probe.look().idle_s or 0) > (before.idle_s or 0))  # it counts on from there
        probe.close()


async def test_a_server_that_goes_takes_nothing_with_it() -> None:
    with x_server() as display:
        probe = X11(display)
        assert probe.look().idle_s is not None
    assert probe.look().idle_s is None
    assert probe.look().detail


def test_under_wayland_it_does_not_vouch_for_the_desktop() -> None:
    with x_server() as display:
        for more in ({"WAYLAND_DISPLAY": "wayland-0"}, {"XDG_SESSION_TYPE": "wayland"}):
            reading = X11(display | more).look()
            assert reading.idle_s is not None
            assert not reading.sees_desktop


def test_a_display_of_another_computer_is_another_desk() -> None:
    assert X11({"DISPLAY": "localhost:10.0"}).look().detail == "DISPLAY 'localhost:10.0' is not on this computer"


def test_without_any_display(tmp_path: Path) -> None:
    assert X11({}, tmp_path).look().detail == "there is no X server"


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
def test_the_cookie_that_lets_us_in(tmp_path: Path, content: bytes, cookie: bytes) -> None:
    file = tmp_path / "authority"
    file.write_bytes(content)
    assert _cookie(file, "0") == cookie
    assert _cookie(tmp_path / "nothing", "0") == b""
