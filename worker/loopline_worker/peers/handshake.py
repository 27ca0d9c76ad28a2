"""The first lines of a connection between two workers, by which each proves to hold the same grant.

    caller    {"role": "receive", "grant": {...}, "nonce": "..."}
    listener  {"nonce": "...", "proof": "..."}
    caller    {"proof": "..."}

The caller receives the file, or serves it if it dials out (role ``serve``). A listener that does not know the grant,
or finds it expired or the proof wrong, closes the connection without a word.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter

from loopline_shared.grants import is_proof, proof
from loopline_shared.protocol.transfers import Grant, Key

HANDSHAKE_WITHIN_S = 5.0
_MAX_LINE_BYTES = 1024

Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class Opening:
    """First line of the caller: what it wants to do, and by which grant."""

    role: Literal["receive", "serve"]
    grant: Grant
    nonce: Nonce


@dataclass(frozen=True, slots=True)
class _Challenge:
    nonce: Nonce
    proof: Key


@dataclass(frozen=True, slots=True)
class _Proof:
    proof: Key


_opening: TypeAdapter[Opening] = TypeAdapter(Opening)
_challenge: TypeAdapter[_Challenge] = TypeAdapter(_Challenge)
_proof: TypeAdapter[_Proof] = TypeAdapter(_Proof)

SecretOf = Callable[[Opening], bytes | None]
"""Returns the secret of the grant that a caller shows; None if it must not be let in."""


class HandshakeError(Exception):
    """The other end is another one than the grant names, or speaks another protocol."""


def call(link: socket.socket, role: Literal["receive", "serve"], grant: Grant, secret: bytes) -> None:
    """Shake hands as the caller, who has connected. Raises HandshakeError, or OSError if the connection fails."""
    link.settimeout(HANDSHAKE_WITHIN_S)
    opening = _opening.dump_json(Opening(role, grant, token_hex(16)))
    link.sendall(opening + b"\n")
    challenge = _read(_challenge, _line_of(link))
    if not is_proof(challenge.proof, proof(secret, "listener", opening, challenge.nonce)):
        raise HandshakeError("it does not know the grant")
    link.sendall(_proof.dump_json(_Proof(proof(secret, "caller", opening, challenge.nonce))) + b"\n")


async def listen(link: socket.socket, secret_of: SecretOf) -> Opening:
    """Shake hands as the listener. Raises HandshakeError, OSError or TimeoutError: then the caller gets nothing."""
    async with asyncio.timeout(HANDSHAKE_WITHIN_S):
        line = await _line_from(link)
        opening = _read(_opening, line)
        secret = secret_of(opening)
        if secret is None:
            raise HandshakeError("its grant is not for this transfer, or has expired")
        nonce = token_hex(16)
        challenge = _challenge.dump_json(_Challenge(nonce, proof(secret, "listener", line, nonce)))
        await asyncio.get_running_loop().sock_sendall(link, challenge + b"\n")
        answer = _read(_proof, await _line_from(link))
        if not is_proof(answer.proof, proof(secret, "caller", line, nonce)):
            raise HandshakeError("it does not know the grant")
        return opening


def _read(adapter: TypeAdapter[Line], line: bytes) -> Line:
    try:
        return adapter.validate_json(line)
    except ValueError as error:
        raise HandshakeError("it does not speak this protocol") from error


def _line_of(link: socket.socket) -> bytes:
    """Receive a line byte by byte: what follows it belongs to the transfer."""
    line = bytearray()
    while (byte := link.recv(1)) != b"\n":
        _extend(line, byte)
    return bytes(line)


async def _line_from(link: socket.socket) -> bytes:
    line, loop = bytearray(), asyncio.get_running_loop()
    while (byte := await loop.sock_recv(link, 1)) != b"\n":
        _extend(line, byte)
    return bytes(line)


def _extend(line: bytearray, byte: bytes) -> None:
    if not byte:
        raise HandshakeError("it closed the connection")
    line += byte
    if len(line) > _MAX_LINE_BYTES:
        raise HandshakeError("its line is too long")
