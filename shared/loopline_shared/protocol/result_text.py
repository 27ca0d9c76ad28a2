"""Results as they are written: once for the worker's disk and its Report, which brings them as they stand there."""

from __future__ import annotations

from pydantic import TypeAdapter

from loopline_shared.model import Result

_NONE = b'"results":[]'
_result: TypeAdapter[Result] = TypeAdapter(Result)


def write(result: Result) -> bytes:
    return _result.dump_json(result)


def read(text: bytes) -> Result:
    """ValidationError where it is none."""
    return _result.validate_json(text)


def with_results(report: bytes, results: list[bytes]) -> bytes:
    """The frame of a Report without results, with these put in; nothing before them in it is a text of others."""
    return report.replace(_NONE, b'"results":[%s]' % b",".join(results), 1)
