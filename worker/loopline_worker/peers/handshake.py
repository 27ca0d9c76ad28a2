"""The first lines of a connection between two workers: each proves that it holds the same grant.

    caller    {"role": "receive", "grant": {...}, "nonce": "..."}
    listener  {"nonce": "...", "proof": "..."}
    caller    {"proof": "..."}

The caller receives the file, or serves it if it dials out (role ``serve``). A listener that does not know the grant,
or finds it expired or the proof wrong, closes the connection without a word.

In an encrypted grid all this is said over TLS (peers/peer_tls.py), and each end must be the worker that the grant
names. Both ends block, in threads, for a few seconds in all.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter

from loopline_shared.grants import is_proof, proof
from loopline_shared.protocol.transfers import Grant, Key
from loopline_worker.peers.peer_tls import PeerTls, worker_at

HANDSHAKE_WITHIN_S = 2.0
_MAX_LINE_BYTES = 1024

Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_AT_FIRST_USE = ConfigDict(defer_build=True)
Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class Opening:
    """First line of the caller: its role and its grant."""

    __pydantic_config__: ClassVar[ConfigDict] = _AT_FIRST_USE

    role: Literal["receive", "serve"]
    grant: Grant
    nonce: Nonce


@dataclass(frozen=True, slots=True)
class _Challenge:
    __pydantic_config__: ClassVar[ConfigDict] = _AT_FIRST_USE

    nonce: Nonce
    proof: Key


@dataclass(frozen=True, slots=True)
class _Proof:
    __pydantic_config__: ClassVar[ConfigDict] = _AT_FIRST_USE

    proof: Key


_opening: TypeAdapter[Opening] = TypeAdapter(Opening)
_challenge: TypeAdapter[_Challenge] = TypeAdapter(_Challenge)
_proof: TypeAdapter[_Proof] = TypeAdapter(_Proof)

SecretOf = Callable[[Opening], bytes | None]
"""Returns the secret of the grant that a caller shows; None if it must not be let in."""


class HandshakeError(Exception):
    """The other end is another one than the grant names, or speaks another protocol."""


def call(
    link: socket.socket, role: Literal["receive", "serve"], grant: Grant, secret: bytes, tls: PeerTls | None = None
) -> socket.socket:
    """Shake hands as the caller, which has connected. Return the connection to use from now on.

    Raises HandshakeError, or OSError if the connection fails; then it is closed.
    """
    until = time.monotonic() + HANDSHAKE_WITHIN_S
    with _closed_on_error(link) as lines:
        lines.begin(until, tls.connected if tls else None)
        lines.check_end(grant.source if role == "receive" else grant.receiver)
        opening = _opening.dump_json(Opening(role, grant, token_hex(16)))
        lines.say(opening)
        challenge = _read(_challenge, lines.hear())
        if not is_proof(challenge.proof, proof(secret, "listener", opening, challenge.nonce)):
            raise HandshakeError("it does not know the grant")
        lines.say(_proof.dump_json(_Proof(proof(secret, "caller", opening, challenge.nonce))))
        return lines.link


def listen(link: socket.socket, secret_of: SecretOf, tls: PeerTls | None = None) -> tuple[socket.socket, Opening]:
    """Shake hands as the listener, and return the connection to go on with.

    Raises HandshakeError or OSError: then the caller gets nothing, and the connection is closed.
    """
    until = time.monotonic() + HANDSHAKE_WITHIN_S
    with _closed_on_error(link) as lines:
        lines.begin(until, tls.accepted if tls else None)
        line = lines.hear()
        opening = _read(_opening, line)
        lines.check_end(opening.grant.receiver if opening.role == "receive" else opening.grant.source)
        secret = secret_of(opening)
        if secret is None:
            raise HandshakeError("its grant is not for this transfer, or has expired")
        nonce = token_hex(16)
        lines.say(_challenge.dump_json(_Challenge(nonce, proof(secret, "listener", line, nonce))))
        answer = _read(_proof, lines.hear())
        if not is_proof(answer.proof, proof(secret, "caller", line, nonce)):
            raise HandshakeError("it does not know the grant")
        return lines.link, opening


@contextmanager
def _closed_on_error(link: socket.socket) -> Iterator[_Lines]:
    lines = _Lines(link)
    try:
        yield lines
    except BaseException:
        lines.link.close()
        raise


class _Lines:
    """Lines on a connection, with one deadline for all of them. What follows belongs to the transfer."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._until = 0.0

    def begin(self, until: float, encrypt: Callable[[socket.socket], socket.socket] | None) -> None:
        """Begin, with TLS if the other end is to prove who it is. Raises OSError."""
        self._until = until
        self._hurry()
        self.link = encrypt(self.link) if encrypt else self.link

    def check_end(self, worker: str) -> None:
        """Raises HandshakeError if the other end has proved to be another worker."""
        if (shown := worker_at(self.link)) not in (None, worker):
            raise HandshakeError(f"its certificate is that of {shown or 'no worker'}")

    def say(self, line: bytes) -> None:
        """Send a line."""
        self._hurry()
        self.link.sendall(line + b"\n")

    def hear(self) -> bytes:
        """Receive a line, byte by byte."""
        line = bytearray()
        while True:
            self._hurry()
            byte = self.link.recv(1)
            if byte == b"\n":
                return bytes(line)
            if not byte:
                raise HandshakeError("it closed the connection")
            line += byte
            if len(line) > _MAX_LINE_BYTES:
                raise HandshakeError("its line is too long")

    def _hurry(self) -> None:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it has said too little in time")
        self.link.settimeout(left_s)


def _read(adapter: TypeAdapter[Line], line: bytes) -> Line:
    try:
        return adapter.validate_json(line)
    except ValueError as error:
        raise HandshakeError("it does not speak this protocol") from error
