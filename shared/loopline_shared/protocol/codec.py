"""Conversion of messages to bytes and back: validated JSON. Only this module knows the format of a frame."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from loopline_shared.errors import ProtocolError
from loopline_shared.protocol.messages import (
    MAX_FRAME_BYTES,
    Assign,
    FromMaster,
    FromWorker,
    Hello,
    Read,
    Refused,
    Report,
    Welcome,
    Wrote,
)

Message = TypeVar("Message")

_from_worker: TypeAdapter[Hello | Report | Wrote] = TypeAdapter(FromWorker)
_from_master: TypeAdapter[Welcome | Refused | Assign | Read] = TypeAdapter(FromMaster)


def encode(message: Hello | Report | Wrote | Welcome | Refused | Assign | Read) -> bytes:
    adapter: TypeAdapter[Any] = _from_worker if isinstance(message, Hello | Report | Wrote) else _from_master
    return adapter.dump_json(message)


def decode_from_worker(frame: bytes) -> Hello | Report | Wrote:
    """Read a worker's frame. Raises ProtocolError if it is invalid."""
    return _decode(_from_worker, frame)


def decode_from_master(frame: bytes) -> Welcome | Refused | Assign | Read:
    """Read a master's frame. Raises ProtocolError if it is invalid."""
    return _decode(_from_master, frame)


def _decode(adapter: TypeAdapter[Message], frame: bytes) -> Message:
    if len(frame) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(frame):,} bytes is over the limit of {MAX_FRAME_BYTES:,}")
    try:
        return adapter.validate_json(frame)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ProtocolError(f"malformed frame: {place}: {first['msg']}") from None
