"""Mistakes that pydantic finds, in words for people who have never heard of pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    "string_pattern_mismatch": "this text is not allowed here",
    "path_type": "expected a path",
    "url_parsing": "expected a URL",
}
_LIMITS = {
    "greater_than": "has to be greater than {gt:g}",
    "greater_than_equal": "has to be at least {ge:g}",
    "less_than": "has to be less than {lt:g}",
    "less_than_equal": "has to be at most {le:g}",
    "too_short": "has to have at least {min_length}",
    "too_long": "may have at most {max_length}",
    "string_too_short": "has to have at least {min_length} letters",
    "string_too_long": "may have at most {max_length} letters",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
}


def plain(mistake: Mapping[str, Any]) -> str:
    """Return the message of one of ``ValidationError.errors()`` in plain words; where there are none, pydantic's."""
    kind, context = str(mistake["type"]), mistake.get("ctx") or {}
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _LIMITS and context:
        return _LIMITS[kind].format(**context)
    return str(mistake["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
