"""Operations of the REST API: access, validation and answers, derived from the signatures of their handlers.

openapi.py describes the same operations. A handler's parameter of a plain class is passed by type: the Caller, the
request, its AuditedAction, or the part of the master of that type (Parts). ``body`` is the JSON body. Annotations of
the others are validated: names in the path's braces come from the path, those marked ``Header`` from that header, the
rest from the query. The return annotation is the answer; a web.StreamResponse is sent unchanged.

Errors are answered as application/problem+json (RFC 9457).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from http import HTTPStatus
from math import inf
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from loopline_master import timings
from loopline_master.admission.busy_time import BusyTime
from loopline_master.dashboard.pages import not_found, wants_page
from loopline_master.http.answers import JSON, Encoded, json_answer
from loopline_master.http.auth import ANYBODY, Access, AuditRecorder, Auth, Caller
from loopline_master.http.incidents import Incidents
from loopline_master.http.live.shared_answers import SharedAnswers
from loopline_master.metrics import Metrics
from loopline_master.settings import is_loopback
from loopline_master.store.queries.audit_log import AuditedAction
from loopline_shared.errors import ExceededLimit, LooplineError
from loopline_shared.plain_words import plain_of
from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.bodies import FieldError, Problem

Part = TypeVar("Part")

Handler = Callable[..., Awaitable[Any]]
_OF_A_REQUEST = (Caller, AuditedAction, web.Request)

PROBLEM_JSON = "application/problem+json"
_MOST_TOLD = 20
_MANY = 1000
_LONGEST_POINTER = 200
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}  # of requests that aiohttp itself refuses
_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "5"},
    503: {"Retry-After": "5"},
}
_HSTS = "max-age=31536000"
_IS_ADMITTED = web.RequestKey("is_admitted", bool)
"""Set on a request whose caller has shown a token."""
_MAX_ANONYMOUS_BYTES = 64 * 2**10
"""Largest body without a token, which holds a secret or a request to join."""
Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Parts:
    """The master's parts, one object of each type: ``parts[Store]`` is the store."""

    def __init__(self, *parts: object) -> None:
        self._by_type: dict[type, object] = {}
        self.add(*parts)

    def add(self, *parts: object) -> None:
        """Add parts, each of a new type."""
        for part in parts:
            assert type(part) not in self, f"there are two parts of type {type(part).__name__}"
            self._by_type[type(part)] = part

    def __iter__(self) -> Iterator[type[object]]:
        """Iterate over the types."""
        return iter(self._by_type)

    def __contains__(self, kind: type[object]) -> bool:
        return kind in self._by_type

    def __getitem__(self, kind: type[Part]) -> Part:
        return cast("Part", self._by_type[kind])


PARTS = web.AppKey("parts", Parts)


@dataclass(frozen=True, slots=True)
class Header:
    """Marks a parameter that comes from the header of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation, as its handler's signature describes it."""

    name: str  # in the handler
    alias: str  # in the request
    place: str  # path, query or header
    annotation: Any
    default: Any  # inspect.Parameter.empty: required

    @property
    def is_required(self) -> bool:
        """True if a request must contain it."""
        return self.default is inspect.Parameter.empty

    @property
    def kind(self) -> Any:
        """The type without None: an optional parameter is omitted instead of sent as null."""
        return _without_none(self.annotation)

    def read(self, request: web.Request) -> Any:
        """Return the value as it is in the request; None if it is missing."""
        if self.place == "path":
            return request.match_info[self.alias]
        if self.place == "header":
            return request.headers.get(self.alias)
        values = request.query.getall(self.alias, [None])
        return values[0] if len(values) == 1 else values  # a list, which no parameter accepts


@dataclass(frozen=True)
class Operation:
    """An operation of the API: its route, its access, and its handler."""

    method: str
    path: str
    handler: Handler
    access: Access
    tag: str
    status: int = 200  # of a success
    declines: tuple[int, ...] = ()  # error statuses, in addition to those implied by the signature
    media_type: str = JSON  # of the answer
    also: str = ""  # another media type for the same bytes, for clients that accept none but well-known ones
    location: str = ""  # path of the created object, with fields of the answer: ``/jobs/{id}``
    item: type[BaseModel] | None = None  # of each document of a stream
    answer: type[BaseModel] | None = None  # of the answer, if the handler encodes it itself
    takes: str | None = None  # media type of a body that the handler reads itself
    headers: Mapping[str, str] = field(default_factory=dict)  # of the answer, with their descriptions
    rest: str = ""  # the parameter that takes the rest of the path, with its slashes
    is_documented: bool = True
    is_shared: bool = False  # the answer is the same for all permitted callers, and may be cached for them
    is_frequent: bool = False  # its path is matched before others with the same prefix
    is_audited: bool | None = None  # recorded in the audit log; None: if it may change something and needs a token

    @property
    def id(self) -> str:
        """The handler's name."""
        return self.handler.__name__

    @property
    def route(self) -> str:
        """The path in the syntax of aiohttp's router."""
        return self.path.replace(f"{{{self.rest}}}", f"{{{self.rest}:.+}}") if self.rest else self.path

    @cached_property
    def signature(self) -> inspect.Signature:
        """The handler's signature, with its annotations evaluated."""
        return inspect.signature(self.handler, eval_str=True)

    @cached_property
    def parameters(self) -> list[Parameter]:
        """The parameters that come from the path, the query or a header."""
        taken = self.signature.parameters.values()
        return [self._parameter(one) for one in taken if one.name != "body" and not isinstance(one.annotation, type)]

    @cached_property
    def handed_in(self) -> dict[str, type]:
        """Parameters that are passed by type, and the class of each."""
        taken = {one.name: one.annotation for one in self.signature.parameters.values() if one.name != "body"}
        return {name: kind for name, kind in taken.items() if isinstance(kind, type)}

    def check_parts(self, parts: Parts) -> None:
        """Raises AssertionError if the handler names a class that is not a part of the master."""
        missing = [kind.__name__ for kind in self.handed_in.values() if kind not in (*_OF_A_REQUEST, *parts)]
        assert not missing, f"{self.id} takes {', '.join(missing)}, which the master does not have"

    @cached_property
    def body(self) -> type[BaseModel] | None:
        """The model of the JSON body; None if the operation takes none."""
        body = self.signature.parameters.get("body")
        return body.annotation if body else None

    def served_by(self, parts: Parts) -> Serve:
        """Return a function that serves requests with the parts that the handler names."""
        self.check_parts(parts)
        given: dict[str, object] = {name: parts[kind] for name, kind in self.handed_in.items() if kind in parts}
        return partial(self._serve, parts, given)

    async def _serve(self, parts: Parts, given: Mapping[str, object], request: web.Request) -> web.StreamResponse:
        """Serve a request: authenticate, validate, call the handler, answer."""
        caller = await parts[Auth].admit(request, self.access)
        request[_IS_ADMITTED] = bool(self.access)
        if caller.name and caller.role != "worker":
            parts[Metrics].costs.count_request(caller.name)
        arguments = {**given, **self._arguments(request)}
        if self.body:
            arguments["body"] = await _read_body(request, self.body, parts[BusyTime], caller)
        action = parts[AuditRecorder].begin(caller, request, self.id) if self._is_audited else None
        for name, kind in self._of_request.items():
            arguments[name] = request if kind is web.Request else caller if kind is Caller else action
        if self.is_shared:
            make = partial(self._encoded, arguments)
            return await json_answer(request, await parts[SharedAnswers].give(request, make))
        answer = await self.handler(**arguments)
        if action:
            await parts[AuditRecorder].note(action, _made(answer) if self.status == 201 else "")
        if isinstance(answer, web.StreamResponse):
            return answer
        headers = {"Location": API_PREFIX + self.location.format_map(vars(answer))} if self.location else {}
        body = answer.model_dump_json().encode()
        return await json_answer(request, body, self.status, headers)

    async def _encoded(self, arguments: Mapping[str, Any]) -> Encoded:
        answer = await self.handler(**arguments)
        return Encoded(answer if isinstance(answer, bytes) else answer.model_dump_json().encode())

    @cached_property
    def _is_audited(self) -> bool:
        may_change = self.method not in ("GET", "HEAD")
        return may_change and bool(self.access) if self.is_audited is None else self.is_audited

    def _parameter(self, taken: inspect.Parameter) -> Parameter:
        alias, place = taken.name, "path" if f"{{{taken.name}}}" in self.path else "query"
        for mark in getattr(_without_none(taken.annotation), "__metadata__", ()):
            if isinstance(mark, Header):
                alias, place = mark.name, "header"
        return Parameter(taken.name, alias, place, taken.annotation, taken.default)

    @cached_property
    def _checks(self) -> type[BaseModel]:
        """A model of all parameters, so that one answer can name all mistakes."""
        fields: dict[str, Any] = {
            one.name: (one.annotation, ... if one.is_required else one.default) for one in self.parameters
        }
        return create_model(self.id, __config__=ConfigDict(extra="forbid"), **fields)

    @cached_property
    def _of_request(self) -> dict[str, type]:
        return {name: kind for name, kind in self.handed_in.items() if kind in _OF_A_REQUEST}

    @cached_property
    def _in_query(self) -> set[str]:
        return {one.alias for one in self.parameters if one.place == "query"}

    def _arguments(self, request: web.Request) -> dict[str, Any]:
        given: dict[str, Any] = {name: value for name, value in request.query.items() if name not in self._in_query}
        given |= {one.name: value for one in self.parameters if (value := one.read(request)) is not None}
        try:
            checked = self._checks.model_validate(given)
        except ValidationError as error:
            raise InvalidRequest("parameters", error, self._checks) from None
        return {one.name: getattr(checked, one.name) for one in self.parameters}


class Routes:
    """The operations of one subject: ``@routes("GET /jobs", READERS)`` above a handler adds one."""

    def __init__(self, tag: str, prefix: str = API_PREFIX) -> None:
        self._tag = tag
        self._prefix = prefix
        self._operations: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def __call__(self, route: str, access: Access, **more: Any) -> Callable[[Handler], Handler]:
        method, path = route.split()

        def add(handler: Handler) -> Handler:
            self._operations.append(Operation(method, self._prefix + path, handler, access, self._tag, **more))
            return handler

        return add


def _made(answer: object) -> str:
    return str(getattr(answer, "id", ""))


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    return Union[tuple(kind for kind in get_args(annotation) if kind is not NoneType)]  # noqa: UP007


async def _read_body(request: web.Request, model: type[BaseModel], busy_time: BusyTime, caller: Caller) -> BaseModel:
    if request.content_type != JSON:
        raise LooplineError("media_type", "the body must be JSON", f"send it with Content-Type: {JSON}", status=415)
    sender = caller.token or request.remote or ""
    await busy_time.rest(sender)
    try:
        is_known = caller is not ANYBODY
        within_s = timings.BODY_WITHIN_S if is_known else timings.FIRST_REQUEST_WITHIN_S
        async with asyncio.timeout(None if request.content.is_eof() else within_s):
            content = await (request.read() if is_known else _read_little(request))
        with busy_time.charged(sender):
            return model.model_validate_json(content)
    except TimeoutError:
        raise too_slow() from None
    except web.HTTPRequestEntityTooLarge:
        message = f"a body may have at most {request.client_max_size:,} bytes here"
        raise LooplineError("too_large", message, "raise limits.max_body_bytes of the master", status=413) from None
    except ValidationError as error:
        if error.error_count() == 1 and (only := error.errors()[0])["type"] == "json_invalid":
            raise LooplineError("malformed_json", only["msg"], "check the body with a JSON tool") from None
        raise InvalidRequest("body", error, model) from None


async def _read_little(request: web.Request) -> bytes:
    """Return a body from a caller without a token. Raises LooplineError if it is large."""
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > _MAX_ANONYMOUS_BYTES:
            message = f"a body may have at most {_MAX_ANONYMOUS_BYTES:,} bytes here"
            raise LooplineError("too_large", message, "send what /docs shows", status=413)
    return bytes(body)


def too_slow() -> LooplineError:
    """Return the answer to a client that sends its body too slowly."""
    return LooplineError("too_slow", "the body of this request did not arrive in time", "send it again", status=408)


class InvalidRequest(LooplineError):  # noqa: N818 a description of the request, not an Error suffix
    """The request's parameters or body are invalid; ``place`` is body or parameters."""

    def __init__(self, place: str, error: ValidationError, model: type[BaseModel]) -> None:
        message = f"something in the {place} of this request is not valid"
        super().__init__("invalid", message, "see /docs for valid values", status=422)
        self.errors = _pointers(place, error, model)


def _pointers(place: str, error: ValidationError, model: type[BaseModel]) -> list[FieldError]:
    if error.error_count() > _MANY:  # formatting them all would take long, and few are shown
        return [FieldError(at=place, message=f"{error.error_count():,} mistakes, too many to list")]
    found = error.errors(include_url=False, include_input=False)
    return [
        FieldError(at=".".join(map(str, (place, *one["loc"])))[:_LONGEST_POINTER], message=plain_of(one, model))
        for one in found[:_MOST_TOLD]
    ]


@web.middleware
async def problems(request: web.Request, handler: Serve) -> web.StreamResponse:
    """Turn exceptions of handlers into answers, unless an answer has begun. The outermost middleware."""
    try:
        return await handler(request)
    except ConnectionResetError:  # the client has gone
        return web.Response(status=HTTPStatus.BAD_REQUEST)
    except Exception as error:
        if request.writer.output_size > 0 or _is_redirection(error):
            raise
        if not request.get(_IS_ADMITTED):
            _stop_reading(request)
        return _answer_to(request, error)


def _stop_reading(request: web.Request) -> None:
    """Leave the body of a refused request unread unless it is small, so that it costs the master no time."""
    if request.content.is_eof() or (request.content_length or inf) <= _MAX_ANONYMOUS_BYTES:
        return
    if request.transport is not None:
        request.transport.pause_reading()
        asyncio.get_running_loop().call_later(timings.REFUSED_IS_SENT_WITHIN_S, request.transport.abort)


def _is_redirection(error: Exception) -> bool:
    return isinstance(error, web.HTTPException) and error.status < 400


def _answer_to(request: web.Request, error: Exception) -> web.Response:
    is_page = not request.path.startswith(API_PREFIX) and wants_page(request)
    if is_page and isinstance(error, LooplineError | web.HTTPException) and error.status == HTTPStatus.NOT_FOUND:
        return not_found(error.message if isinstance(error, LooplineError) else f"This master has no {request.path}.")
    if isinstance(error, LooplineError):
        errors = error.errors if isinstance(error, InvalidRequest) else []
        headers = _quota_headers(error.code, error.quota) if error.quota else {}
        return _answer(error.status, error.code, error.message, error.hint, errors, headers=headers)
    if isinstance(error, web.RequestPayloadError):
        detail = "the body cannot be read: it does not match its Transfer-Encoding"
        return _answer(400, "malformed_body", detail, "send it with Content-Length")
    if isinstance(error, web.HTTPException):
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        code = _CODES.get(error.status, "bad_request")
        detail = f"{request.method} {request.path}: {error.reason}"
        return _answer(error.status, code, detail, "/docs lists the operations", headers=headers)
    incident = request.config_dict[PARTS][Incidents].note(f"{request.method} {request.path}", error)
    return _answer(500, "internal", "the master failed at this request", f"its log says why, at incident {incident}")


def _quota_headers(name: str, quota: ExceededLimit) -> dict[str, str]:
    """Return the headers of draft-ietf-httpapi-ratelimit-headers-10 (3 and 4), and when to try again."""
    window = "" if quota.window_s is None else f";w={quota.window_s}"
    unit = "" if quota.unit == "requests" else f';qu="{quota.unit}"'
    headers = {
        "RateLimit-Policy": f'"{name}";q={quota.allowed}{unit}{window}',
        "RateLimit": f'"{name}";r={quota.left}' + ("" if quota.again_s is None else f";t={quota.again_s}"),
    }
    return headers if quota.again_s is None else {**headers, "Retry-After": str(quota.again_s)}


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
    return web.Response(status=status, text=problem.model_dump_json(), content_type=PROBLEM_JSON, headers=headers)


async def harden(request: web.Request, response: web.StreamResponse) -> None:
    """Forbid browsers to guess an answer's type, to run users' files, and to cache unless the answer permits it."""
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
    response.headers.setdefault("Cache-Control", "no-store")
    if request.secure and not is_loopback(request.url.host or ""):  # there, other programs serve other ports
        response.headers.setdefault("Strict-Transport-Security", _HSTS)
