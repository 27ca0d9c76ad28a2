"""Mistakes that pydantic finds, in words for people who have never heard of pydantic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

_KINDS = {
    "string_type": "expected a text",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
    "dict_type": "expected names with their values",
    "model_type": "expected names with their values",
    "dataclass_type": "expected names with their values",
    "model_attributes_type": "expected names with their values",
    "none_required": "expected nothing here",
    "missing": "this is missing",
    "extra_forbidden": "there is no such key",
    "unexpected_keyword_argument": "there is no such key",
    "path_type": "expected a path",
    "url_parsing": "expected a URL",
}
_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
_LIMITS = {
    "greater_than": "has to be greater than {gt:.16g}",
    "greater_than_equal": "has to be at least {ge:.16g}",
    "less_than": "has to be less than {lt:.16g}",
    "less_than_equal": "has to be at most {le:.16g}",
    "too_short": "has to have at least {min_length}",
    "too_long": "may have at most {max_length}",
    "string_too_short": "has to have at least {min_length} letters",
    "string_too_long": "may have at most {max_length} letters",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
}
_TEXTS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "expected letters and digits, and ., _ and - after the first",
    r"^[^\x00]*$": "NUL is not allowed here",
    r"^[^\x00-\x1f\x7f]*$": "control characters, such as the end of a line, are not allowed here",
    r"^[0-9a-f]{8}$": "expected 8 digits, from 0 to 9 and a to f",
    r"^[0-9a-f]{64}$": "expected a SHA-256: 64 digits, from 0 to 9 and a to f",
}
"""What is expected where a text does not match this pattern."""


def plain_of(mistake: Mapping[str, Any], model: type[BaseModel]) -> str:
    """Return the message of a mistake in a document of this model: of an unknown key, the key that was meant."""
    said = plain(mistake)
    if mistake["type"] not in _UNKNOWN_KEY:
        return said
    *path, wrong = mistake["loc"]
    return f"{said}: {meant(str(wrong), _known_keys(model, path))}"


def _known_keys(model: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    """Return the keys of the object at this path. Places in lists and kinds of a union are steps of it, too."""
    kinds: list[type[Any]] = [model]
    for step in path:
        found = [annotation for kind in kinds if (annotation := _fields_of(kind).get(step)) is not None]
        kinds = [each for annotation in found for each in _kinds_in(annotation)] or kinds
    return {name for kind in kinds for name in _fields_of(kind)}


def _fields_of(kind: type[Any]) -> dict[Any, Any]:
    if issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    names = {field.name for field in fields(kind)}  # ``__dataclass_fields__`` has class variables, too
    return {name: hint for name, hint in get_type_hints(kind).items() if name in names}


def _kinds_in(annotation: Any) -> Iterator[type[Any]]:
    """Yield the models and dataclasses in an annotation."""
    if isinstance(annotation, type) and (is_dataclass(annotation) or issubclass(annotation, BaseModel)):
        yield annotation
    for part in get_args(annotation):
        yield from _kinds_in(part)


def plain(mistake: Mapping[str, Any]) -> str:
    """Return the message of one of ``ValidationError.errors()`` in plain words; where there are none, pydantic's."""
    kind, context = str(mistake["type"]), mistake.get("ctx") or {}
    if kind in _KINDS:
        return _KINDS[kind]
    if kind == "string_pattern_mismatch":
        return _TEXTS.get(context.get("pattern", ""), "this text is not allowed here")
    if kind in _LIMITS and context:
        return _LIMITS[kind].format(**context)
    return str(mistake["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")


def meant(wrong: str, right: Iterable[str]) -> str:
    """Return a hint that names the nearest known word, or all of them."""
    import difflib  # hardly ever

    known = sorted(right)
    close = difflib.get_close_matches(wrong, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are: {', '.join(known) or 'none'}"
