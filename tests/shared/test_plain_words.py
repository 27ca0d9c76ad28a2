"""Mistakes are described without the jargon of the library that finds them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from loopline_shared.plain_words import plain, plain_of
from loopline_shared.spec import JobSpec

WRONG: list[dict[str, Any]] = [
    {"command": 5}, {"command": []}, {"command": [None]}, {"command": ["x" * 100_001]}, {"size": "x"}, {"size": 0},
    {"size": float("nan")}, {"size": 1e16}, {"max_attempts": 1.5}, {"max_attempts": 0}, {"max_attempts": "3"},
    {"requires": []}, {"requires": {"os": "beos"}}, {"requires": {"labels": ["a b"]}}, {"requires": {"network": 1}},
    {"parameters": {"a": [None]}}, {"parameters": {"a": []}}, {"parameters": {"a": {"range": [1, 2, 3, 4]}}},
    {"environment": {"a": 1}}, {"inputs": {"a": "b"}}, {"after": [0]}, {"name": 7}, {"quorum": 1}, {"max_fails": "x"},
    {"tasks": {}}, {"notify": "me"}, {"outputs": "x"}, {"timeout_s": -1},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_no_word_of_pydantic_is_left(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as found:
        JobSpec.model_validate({"command": ["x"], **wrong})
    for mistake in found.value.errors():
        said = plain(mistake).lower()
        for word in (
            "input should",
            "string",
            "value error",
            "dictionary",
            "instance",
            "pydantic",
            "validation",
            "regex",
        ):
            assert word not in said, said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "two\nlines"}, "control characters, such as the end of a line, are not allowed here"),
        ({"command": ["a\0b"]}, "NUL is not allowed here"),
        ({"requires": {"labels": ["a b"]}}, "expected letters and digits, and ., _ and - after the first"),
        ({"size": 1e16}, "has to be at most 1000000000000000"),
        ({"size": 0}, "has to be greater than 0"),
        ({"name": "x" * 300}, "may have at most 200 letters"),
        ({"command": ["x" * 100_001]}, "may have at most 100000 letters"),
    ],
)
def test_expected_value_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as found:
        JobSpec.model_validate({"command": ["x"], **wrong})
    assert plain(found.value.errors()[0]).startswith(said)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"siez": 1}, "size"),
        ({"requires": {"memory_byte": 1}}, "memory_bytes"),
        ({"requires": {"software": {"package": "x"}}}, "packages"),
        ({"tasks": [{"command": ["x"]}, {"comand": ["x"]}]}, "command"),
        ({"parameters": {"a": {"range": [1, 2], "rang": 1}}}, "range"),
        ({"outputs": [{"path": "x", "optionl": True}]}, "optional"),
    ],
)
def test_unknown_key_names_the_nearest_key_of_its_object(wrong: dict[str, Any], meant: str) -> None:
    with pytest.raises(ValidationError) as found:
        JobSpec.model_validate({"command": ["x"], **wrong})
    mistake = next(one for one in found.value.errors() if plain(one) == "there is no such key")
    assert plain_of(mistake, JobSpec) == f"there is no such key: did you mean {meant}?"


def test_message_on_an_unknown_key_lists_no_class_variables() -> None:
    with pytest.raises(ValidationError) as error:
        JobSpec.model_validate({"command": ["work"], "inputs": {"a": {"file": f"sha256:{0:064x}", "zzz": 1}}})
    (mistake,) = [one for one in error.value.errors() if one["loc"][-1] == "zzz"]
    assert plain_of(mistake, JobSpec).endswith("known are: executable, file, folder, link")
