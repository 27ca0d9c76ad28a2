"""Parts of a Report, written once: a worker says again and again what it holds, and most of that has not changed."""

from __future__ import annotations

from functools import lru_cache

from pydantic import TypeAdapter

from shared.model import AttemptId, Held, Load, Result

_held: TypeAdapter[Held] = TypeAdapter(Held)
_load: TypeAdapter[Load] = TypeAdapter(Load)
_result: TypeAdapter[Result] = TypeAdapter(Result)


def held(held: Held) -> bytes:
    return _held.dump_json(held)


@lru_cache(4096)
def waiting(attempt: AttemptId) -> bytes:
    """Of an attempt that has not begun: it is held, and nothing else is to be said of it."""
    return b'{"attempt":"%s","waiting":true}' % str(attempt).encode()


def result(result: Result) -> bytes:
    return _result.dump_json(result)


def read_result(text: bytes) -> Result:
    return _result.validate_json(text)


def report(seq: int, seen: int, holding: list[bytes], results: list[bytes], load: Load) -> bytes:
    """A Report's frame."""
    return b'{"seq":%d,"seen":%d,"holding":[%s],"results":[%s],"load":%s,"kind":"report"}' % (
        seq,
        seen,
        b",".join(holding),
        b",".join(results),
        _load.dump_json(load),
    )
