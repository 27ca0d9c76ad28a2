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
    "path_type": "expected a path",
    "url_parsing": "expected a URL",
}
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
