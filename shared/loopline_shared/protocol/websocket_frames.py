"""Frames of a WebSocket (RFC 6455) without I/O: messages to bytes, and received bytes to messages.

A message is one frame, or several with the last one marked. Frames of a client are masked, those of a server are
not. Extensions, such as compression, are not offered and so may not be used.
"""

from __future__ import annotations

from struct import Struct

from loopline_shared.errors import ProtocolError

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL_CLOSE = 1000
_KINDS = {CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG}
_LAST, _RESERVED, _KIND, _MASKED = 0x80, 0x70, 0x0F, 0x80
_MOST_CONTROL_BYTES = 125
_SHORT, _LONG = 126, 127  # in place of a length: it follows in two bytes, or in eight
_HEADER_BYTES = 2
_SHORT_HEADER, _LONG_HEADER = Struct("!BBH"), Struct("!BBQ")


def frame_of(payload: bytes, kind: int = BINARY, mask: bytes = b"") -> bytes:
    """Return a message as one frame. ``mask``: four unpredictable bytes, for a client's frame."""
    first, size, bit = _LAST | kind, len(payload), _MASKED if mask else 0
    if size < _SHORT:
        header = bytes((first, bit | size))
    elif size < 2**16:
        header = _SHORT_HEADER.pack(first, bit | _SHORT, size)
    else:
        header = _LONG_HEADER.pack(first, bit | _LONG, size)
    return header + mask + masked(payload, mask) if mask else header + payload


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return the payload with the mask over it; the same again removes it."""
    size = len(payload)
    over = (mask * (size // len(mask) + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(over)).to_bytes(size)


def close_payload(code: int, reason: str = "") -> bytes:
    """Return the payload of a frame that closes a connection."""
    return code.to_bytes(2) + reason.encode()


def close_reason(payload: bytes) -> str:
    """Return why the other end closes the connection: its words, or else its code."""
    return payload[2:].decode(errors="replace") or str(int.from_bytes(payload[:2]) or 1005)


class IncomingFrames:
    """Reads the frames of a server from pieces of any size. A message of more than ``limit_bytes`` is an error."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []  # of a frame that is incomplete
        self._missing_bytes = _HEADER_BYTES  # of it, as far as is known
        self._kind = CONTINUATION  # of the message that is being received
        self._message = bytearray()

    def feed(self, piece: bytes) -> list[tuple[int, bytes]]:
        """Return the kind and the payload of each message that this completes. Raises ProtocolError."""
        self._pieces.append(piece)
        self._missing_bytes -= len(piece)
        if self._missing_bytes > 0:
            return []
        data, at, found = b"".join(self._pieces), 0, list[tuple[int, bytes]]()
        while True:
            start, end = self._bounds(data, at)
            if end > len(data):
                break
            self._add(data[at], data[start:end], found)
            at = end
        self._pieces = [data[at:]] if at < len(data) else []
        self._missing_bytes = end - len(data)
        return found

    def _bounds(self, data: bytes, at: int) -> tuple[int, int]:
        """Return where the payload of a frame begins and ends; where its header ends, if not all of that is there."""
        start = at + _HEADER_BYTES
        if start > len(data):
            return start, start
        size = data[at + 1]
        if size & _MASKED:
            raise ProtocolError("the other end sent a frame that is masked")
        if size >= _SHORT:
            is_short = size == _SHORT
            start += 2 if is_short else 8
            if start > len(data):
                return start, start
            size = int.from_bytes(data[at + _HEADER_BYTES : start])
            if size < (_SHORT if is_short else 2**16):
                raise ProtocolError("the other end sent a length in more bytes than it takes")
        self._check(data[at], size)
        return start, start + size

    def _check(self, first: int, size: int) -> None:
        kind = first & _KIND
        if first & _RESERVED or kind not in _KINDS:
            raise ProtocolError("the other end sent a frame of an unknown kind")
        if kind >= CLOSE:
            if size > _MOST_CONTROL_BYTES or not first & _LAST:
                raise ProtocolError("the other end sent a control frame that is too long, or in pieces")
        elif (kind == CONTINUATION) is (self._kind == CONTINUATION):
            raise ProtocolError("the other end sent a frame that does not follow from the one before")
        elif len(self._message) + size > self._limit_bytes:
            raise ProtocolError(f"the other end sent a message of more than {self._limit_bytes:,} bytes")

    def _add(self, first: int, payload: bytes, found: list[tuple[int, bytes]]) -> None:
        """Take in a frame, which may complete a message."""
        kind = first & _KIND
        if kind >= CLOSE or (kind and first & _LAST):
            found.append((kind, payload))
            return
        self._kind = kind or self._kind
        self._message += payload
        if first & _LAST:
            found.append((self._kind, bytes(self._message)))
            self._kind, self._message = CONTINUATION, bytearray()
