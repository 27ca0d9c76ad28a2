"""Results as text: serialized once, for the worker's disk and for its Report, which embeds them unchanged."""

from __future__ import annotations

from pydantic import TypeAdapter

from loopline_shared.model import Result

_NONE = b'"results":[]'
_result: TypeAdapter[Result] = TypeAdapter(Result)


def write(result: Result) -> bytes:
    return _result.dump_json(result)


def read(text: bytes) -> Result:
    """Read a result. Raises ValidationError if it is invalid."""
    return _result.validate_json(text)


def with_results(report: bytes, results: list[bytes]) -> bytes:
    """Insert these results into the frame of a Report without results, at the first empty list of that name."""
    return report.replace(_NONE, b'"results":[%s]' % b",".join(results), 1)
