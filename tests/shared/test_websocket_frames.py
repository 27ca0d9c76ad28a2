"""Frames of a WebSocket against the examples and the rules of RFC 6455."""

from __future__ import annotations

import pytest

from loopline_shared.errors import ProtocolError
from loopline_shared.protocol.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    IncomingFrames,
    close_payload,
    close_reason,
    frame_of,
    masked,
)

LIMIT_BYTES = 70_000
HELLO = bytes.fromhex("810548656c6c6f")  # the examples of section 5.7
IN_TWO = bytes.fromhex("010348656c"), bytes.fromhex("80026c6f")
LARGE = bytes(range(256)) * 256


def read(data: bytes, pieces_of: int = 2**20) -> list[tuple[int, bytes]]:
    reader = IncomingFrames(LIMIT_BYTES)
    return [one for at in range(0, len(data), pieces_of) for one in reader.feed(data[at : at + pieces_of])]


def test_the_examples_of_the_standard() -> None:
    assert frame_of(b"Hello", TEXT) == HELLO
    assert frame_of(b"Hello", TEXT, bytes.fromhex("37fa213d")).hex() == "818537fa213d7f9f4d5158"
    assert frame_of(b"Hello", PING) == bytes.fromhex("890548656c6c6f")
    assert frame_of(LARGE[:256])[:4] == bytes.fromhex("827e0100")
    assert frame_of(LARGE)[:10] == bytes.fromhex("827f0000000000010000")
    assert read(HELLO) == read(b"".join(IN_TWO)) == [(TEXT, b"Hello")]


@pytest.mark.parametrize("pieces_of", [1, 2, 3, 7, 1000, 2**20])
def test_frames_come_in_pieces_of_any_size(pieces_of: int) -> None:
    messages = [(BINARY, LARGE[:size]) for size in (0, 1, 125, 126, 127, 65_535, 65_536)]
    data = b"".join(frame_of(payload, kind) for kind, payload in messages)
    assert read(data, pieces_of) == messages


def test_control_frames_come_between_those_of_a_message() -> None:
    data = IN_TWO[0] + frame_of(b"there?", PING) + bytes.fromhex("0000") + frame_of(b"", PONG) + IN_TWO[1]
    assert read(data) == [(PING, b"there?"), (PONG, b""), (TEXT, b"Hello")]


@pytest.mark.parametrize(
    "data",
    [
        "8185 37fa213d 7f9f4d5158",  # masked, by a server
        "c105 48656c6c6f",  # compressed
        "8300", "8b00",  # kinds that there are not
        "0900",  # a ping in pieces
        "897e 007e",  # a ping of 126 bytes
        "8001 00",  # it continues nothing
        "0101 00 8101 00",  # another begins within a message
        "827e 007d", "827f 000000000000ffff",  # lengths in more bytes than they take
        "827f 0000000000011171", "827f ffffffffffffffff",  # more than the limit; of these nothing need have come
        "027f 0000000000010000" + LARGE.hex() + "807e 1500",
    ],
)  # fmt: skip
def test_invalid_server_frames_are_refused(data: str) -> None:
    with pytest.raises(ProtocolError):
        read(bytes.fromhex(data))


def test_a_mask_is_removed_by_itself() -> None:
    assert masked(masked(LARGE, b"\0\1\2\3"), b"\0\1\2\3") == LARGE
    assert masked(b"", b"abcd") == b""


def test_why_a_connection_is_closed() -> None:
    assert close_reason(close_payload(1001, "restarting")) == "restarting"
    assert close_reason(close_payload(1001)) == "1001"
    assert close_reason(b"") == "1005"
    assert read(frame_of(close_payload(1000), CLOSE)) == [(CLOSE, b"\x03\xe8")]
