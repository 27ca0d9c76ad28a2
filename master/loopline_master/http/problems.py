"""Errors of requests, as application/problem+json (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from secrets import token_hex

from aiohttp import web
from pydantic import ValidationError

from loopline_shared.errors import LooplineError
from loopline_shared.plain_words import plain
from loopline_shared.rest.bodies import FieldError, Problem

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_MOST_TOLD = 20
_MANY = 1000
_LONGEST_POINTER = 200
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}  # of requests that aiohttp itself refuses
_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "5"},
    503: {"Retry-After": "5"},
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class InvalidRequest(LooplineError):  # noqa: N818 it is what the request is
    """The request's parameters or body are not what the operation takes; ``place`` is body or parameters."""

    def __init__(self, place: str, error: ValidationError) -> None:
        message = f"something in the {place} of this request is not valid"
        super().__init__("invalid", message, "/docs shows what is", status=422)
        self.errors = _pointers(place, error)


def _pointers(place: str, error: ValidationError) -> list[FieldError]:
    if error.error_count() > _MANY:  # all of them would be formatted, for the few that are shown
        return [FieldError(at=place, message=f"{error.error_count():,} mistakes, too many to tell")]
    found = error.errors(include_url=False, include_input=False)
    return [
        FieldError(at=".".join(map(str, (place, *one["loc"])))[:_LONGEST_POINTER], message=plain(one))
        for one in found[:_MOST_TOLD]
    ]


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn exceptions of handlers into answers, unless an answer has begun. The outermost middleware."""
    try:
        return await handler(request)
    except Exception as error:
        if request.writer.output_size > 0 or _is_redirection(error):
            raise
        return _answer_to(request, error)


def _is_redirection(error: Exception) -> bool:
    return isinstance(error, web.HTTPException) and error.status < 400


def _answer_to(request: web.Request, error: Exception) -> web.Response:
    if isinstance(error, LooplineError):
        errors = error.errors if isinstance(error, InvalidRequest) else []
        return _answer(error.status, error.code, error.message, error.hint, errors)
    if isinstance(error, web.HTTPException):
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        code = _CODES.get(error.status, "bad_request")
        detail = f"{request.method} {request.path}: {error.reason}"
        return _answer(error.status, code, detail, "/docs shows what there is", headers=headers)
    incident = token_hex(4)
    log.error("incident %s: %s %s", incident, request.method, request.path, exc_info=error)
    return _answer(500, "internal", "the master failed at this request", f"its log says why, at incident {incident}")


def _answer(
    status: int,
    code: str,
    detail: str,
    hint: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    title = HTTPStatus(status).phrase
    problem = Problem(title=title, status=status, detail=detail, code=code, hint=hint, errors=list(errors))
    headers = {**_HEADERS.get(status, {}), **(headers or {})}
    return web.Response(status=status, text=problem.model_dump_json(), content_type=MEDIA_TYPE, headers=headers)
