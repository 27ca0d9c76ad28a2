"""The OpenAPI 3.1 document of all operations. Pydantic makes all schemas together."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from inspect import getdoc
from typing import Any

from pydantic import BaseModel, TypeAdapter

from loopline_master.http.answers import JSON
from loopline_master.http.field_notes import describe_fields
from loopline_master.http.operations import PROBLEM_JSON, Operation, Parameter
from loopline_master.http.sessions import COOKIE
from loopline_shared import __version__
from loopline_shared.rest.bodies import Problem

Json = dict[str, Any]
_Key = tuple[str, str]
_INFO = {
    "title": "Loopline",
    "version": __version__,
    "description": "The master of a grid. Errors are application/problem+json. Times are RFC 3339; in columns for "
    "charts they are seconds since 1970.",
    "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
}
_SERVERS = [{"url": "/", "description": "The master that this document comes from."}]
_TAGS = {
    "jobs": "Jobs: submit, list, steer, explain.",
    "tasks": "Tasks of a job, their attempts and their output.",
    "outputs": "Output files of tasks.",
    "timeline": "Attempts, planned starts and spare CPU over time, in columns for charts.",
    "streams": "Streams: results as they arrive, and changes in the grid.",
    "workers": "Workers, and the network between them.",
    "programs": "Statistics about programs, which predict jobs without a size.",
    "files": "Files by their content: inputs and outputs, each under the SHA-256 of its bytes.",
    "history": "Use of the grid by users, workers and jobs.",
    "access": "Tokens, sessions of browsers, and computers that join.",
    "system": "The master itself: health, metrics, the audit of the order guarantee.",
}
_SECURITY = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token: the master's first start writes one."},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "A browser that has signed in."},
}


def document(operations: Iterable[Operation]) -> Json:
    """Return the document."""
    described = [operation for operation in operations if operation.is_documented]
    schemas, shared = TypeAdapter.json_schemas(list(_models(described)), ref_template="#/components/schemas/{model}")
    of = {key: schema for (key, _), schema in schemas.items()}
    paths: Json = {}
    for operation in described:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, of)
    components = _readable(shared.get("$defs", {}))
    describe_fields(components)
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": _SERVERS,
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
    }


def _readable(schema: Any) -> Any:
    """Return the schema in a form that client generators understand, with one-value enumerations for constants.

    For a constant in a union, generators make readers that refuse the other types. They also do not support an array
    that has schemas for its positions but none for its items.
    """
    if isinstance(schema, list):
        return [_readable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: _readable(part) for key, part in schema.items()}
    if isinstance(parts.get("const"), str):
        parts["enum"] = [parts.pop("const")]
    if "prefixItems" in parts:
        parts.setdefault("items", {})
    return parts


def _models(operations: Iterable[Operation]) -> Iterable[tuple[_Key, Any, TypeAdapter[Any]]]:
    """Generate the types that need a schema: (key, reading or writing, type)."""
    yield ("", "problem"), "serialization", TypeAdapter(Problem)
    for operation in operations:
        for parameter in operation.parameters:
            yield (operation.id, parameter.name), "validation", TypeAdapter(parameter.kind)
        if operation.body:
            yield (operation.id, "body"), "validation", TypeAdapter(operation.body)
        if answer := operation.item or operation.answer or _model_answered(operation):
            yield (operation.id, "answer"), "serialization", TypeAdapter(answer)


def _operation(operation: Operation, of: dict[_Key, Json]) -> Json:
    summary, _, description = (getdoc(operation.handler) or "").partition("\n\n")
    described: Json = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": summary.rstrip("."),
        "description": f"{description}\n\n{_who(operation)}".strip(),
        "responses": _responses(operation, of),
        "security": [{"token": []}, {"session": []}] if operation.access else [],
    }
    if operation.parameters:
        described["parameters"] = [_parameter(one, of[operation.id, one.name]) for one in operation.parameters]
    if media_type := operation.takes or (operation.body and JSON):
        schema = of.get((operation.id, "body"), {})
        described["requestBody"] = {"required": True, "content": {media_type: {"schema": schema}}}
    return described


def _parameter(parameter: Parameter, schema: Json) -> Json:
    described: Json = {"name": parameter.alias, "in": parameter.place, "required": parameter.is_required}
    if text := schema.get("description"):
        described["description"] = text
    if not parameter.is_required and parameter.default is not None:
        schema = {**schema, "default": parameter.default}
    return {**described, "schema": schema}


def _responses(operation: Operation, of: dict[_Key, Json]) -> Json:
    answer: Json = {"description": HTTPStatus(operation.status).phrase}
    if operation.method != "HEAD" and operation.status != HTTPStatus.NO_CONTENT:
        schema = of.get((operation.id, "answer"), {})
        kinds = [operation.media_type, *([operation.also] if operation.also else [])]
        answer["content"] = {kind: {"schema": _schema(kind, schema)} for kind in kinds}
        if operation.item:  # OpenAPI 3.1 cannot describe a sequence of documents
            answer["description"] = f"{answer['description']}: one {operation.item.__name__} after the other"
    if headers := {**operation.headers, **_headers(operation)}:
        answer["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()
        }
    problem = {"content": {PROBLEM_JSON: {"schema": of["", "problem"]}}}
    declined = {str(s): {"description": HTTPStatus(s).phrase, **problem} for s in sorted(_declines(operation))}
    return {str(operation.status): answer, **declined}


def _schema(media_type: str, answer: Json) -> Json:
    """Return the schema of an answer of this media type; a string if it is not JSON."""
    if media_type.endswith("json"):
        return answer
    if media_type == "text/event-stream":  # some generators parse its events, others read it as text
        return {}
    return {"type": "string", **({} if media_type.startswith("text/") else {"format": "binary"})}


def _headers(operation: Operation) -> dict[str, str]:
    """Return the headers of an answer, with their descriptions."""
    if operation.location:
        return {"Location": "The address of the created object"}
    is_tagged = operation.method == "GET" and operation.media_type == JSON
    return (
        {"ETag": "Send it in If-None-Match: 304 comes back while the answer would be the same"} if is_tagged else {}
    )


def _declines(operation: Operation) -> set[int]:
    """Return the error statuses of an operation: those implied by its signature, and its own."""
    declines = {500, *operation.declines}
    declines |= {401, 403, 429} if operation.access else set()
    declines |= {400, 413, 415, 422} if operation.body else set()
    declines |= {422} if operation.parameters else set()
    declines |= {400} if any(one.name == "cursor" for one in operation.parameters) else set()
    return declines | ({404} if "{" in operation.path else set())


def _who(operation: Operation) -> str:
    return f"For: {', '.join(sorted(operation.access))}." if operation.access else "Open to all."


def _model_answered(operation: Operation) -> type[BaseModel] | None:
    answer = operation.signature.return_annotation
    return answer if issubclass(answer, BaseModel) else None
