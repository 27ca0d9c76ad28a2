"""Valid and invalid job specs, and the messages about invalid ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loopline_shared.job.parameters import MAX_TASKS, Range
from loopline_shared.spec import JobSpec, TaskSpec
from tests.campaign import PATIENT, tried


def job(**given: Any) -> JobSpec:
    """As it comes over REST."""
    return JobSpec.model_validate_json(json.dumps({"command": ["x"], **given}))


def complaint(**given: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        job(**given)
    return str(caught.value)


# --- ranges ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([1, 5], [1, 2, 3, 4, 5]),
        ([1, 6, 2], [1, 3, 5]),
        ([1, 5, 2], [1, 3, 5]),
        ([3, 3], [3]),
        ([5, 1, -2], [5, 3, 1]),
        ([-2, 0], [-2, -1, 0]),
    ],
)
def test_a_range_includes_both_ends(given: list[int], values: list[int]) -> None:
    numbers = Range(range=given)
    assert [numbers[place] for place in range(len(numbers))] == values


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-5, 5).filter(bool))
def test_a_range_is_pythons_with_the_last_included(first: int, last: int, step: int) -> None:
    expected = list(range(first, last + (1 if step > 0 else -1), step))
    if not expected:
        with pytest.raises(ValidationError, match="is empty"):
            Range(range=[first, last, step])
        return
    numbers = Range(range=[first, last, step])
    assert [numbers[place] for place in range(len(numbers))] == expected


@pytest.mark.parametrize("given", [[5, 1], [1, 5, -1], [1, 5, 0], [0, 1, 0]])
def test_an_empty_range_is_refused_with_the_way_to_write_one(given: list[int]) -> None:
    assert f"the range {given} is empty: give [first, last] or [first, last, step]" in complaint(
        parameters={"i": {"range": given}}
    )


@pytest.mark.parametrize("given", [[], [1], [1, 2, 3, 4], [1.5, 3], ["1", 2], [True, 2], None, [1, None]])
def test_invalid_ranges_are_refused(given: Any) -> None:
    assert "parameters" in complaint(parameters={"i": {"range": given}})


@pytest.mark.parametrize(
    "given", [[0, 10**30], [-(10**30), 0], [2**60, 2**60 + 1], [0, 2**53 + 1], [1, 2, 10**400]], ids=range(5)
)
def test_a_range_of_numbers_that_do_not_survive_json(given: list[int]) -> None:
    """A worker would get another number, or could not read its Assign."""
    assert "range" in complaint(parameters={"i": {"range": given}})


# --- sizes of things -------------------------------------------------------------------------------------------


def test_a_range_of_too_many_values() -> None:
    assert f"more than {MAX_TASKS:,} values" in complaint(parameters={"i": {"range": [0, MAX_TASKS]}})


def test_a_product_of_too_many_tasks() -> None:
    hundreds = {f"p{n}": {"range": [1, 100]} for n in range(5)}
    assert f"10,000,000,000 tasks are more than the limit of {MAX_TASKS:,}" in complaint(parameters=hundreds)
    huge = {f"p{n}": {"range": [1, MAX_TASKS]} for n in range(50)}
    assert "are more than the limit" in complaint(parameters=huge)


def test_the_largest_job_costs_nothing() -> None:
    tasks = {"a": {"range": [1, 10_000]}, "b": {"range": [1, MAX_TASKS // 10_000]}}
    assert job(parameters=tasks).task_count == MAX_TASKS


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"i": []},
        {"rows": []},
        {"1i": [1]},
        {"a-b": [1]},
        {"": [1]},
        {"file": "rows.csv"},
        {"file": f"sha256:{'0' * 64}", "count": 0},
    ],
)
def test_parameters_that_make_no_tasks(parameters: dict[str, Any]) -> None:
    assert "parameters" in complaint(parameters=parameters)


@pytest.mark.parametrize("size", [0, -1, "1", True, 1.1e15])
def test_a_size_is_a_positive_number(size: Any) -> None:
    assert "size" in complaint(size=size)
    assert "size" in complaint(tasks=[{"size": size}])


@pytest.mark.parametrize("size", [float("inf"), float("nan"), -float("inf")])
def test_a_size_is_finite(size: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        JobSpec(command=["x"], size=size)
    assert "size" in complaint(size=size)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("max_attempts", [0, -1, 1001, 1.5, "1", True]),
        ("max_replicas", [0, -1, 65537, "none", 1.5, True]),
        ("timeout_s", [0, -1, 1e10, "1", float("nan")]),
        ("name", ["a\nb", "\x00", "x" * 201, 1]),
        ("requires", [{"os": "beos"}, {"slots": 0}, {"memory_bytes": -1}, {"labels": ["a b"]}, {"ram": 1}]),
        ("command", [[], "ls", [1], ["x"] * 1001, ["a\x00b"], ["x" * 100_001], None]),
        ("environment", [{"": "x"}, {"A=B": "x"}, {"A\x00": "x"}, {"A": "x\x00"}, {"A": 1}, {"A" * 201: "x"}]),
        ("tasks", [[], [{"command": []}], [{"comand": ["x"]}], [{"parameters": {"a b": 1}}]]),
        ("comand", [["x"]]),
    ],
)
def test_refused_field_is_named(field: str, values: list[Any]) -> None:
    for value in values:
        said = complaint(**{field: value})
        assert field in said, f"{value!r:.80}: {said}"


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, 2**53 + 1, -(2**53) - 1, float("inf"), "x" * 10_001])
def test_a_parameter_is_a_scalar_that_survives_json(value: Any) -> None:
    assert "parameters" in complaint(parameters={"i": [value]})
    assert "parameters" in complaint(parameters={"rows": [{"i": value}]})
    assert "tasks" in complaint(tasks=[{"parameters": {"i": value}}])


def test_a_parameter_without_nul_since_no_command_line_can_hold_one() -> None:
    assert "parameters" in complaint(parameters={"i": ["a\x00b"]})
    assert "parameters" in complaint(parameters={"rows": [{"i": "a\x00b"}]})
    assert "tasks" in complaint(tasks=[{"parameters": {"i": "a\x00b"}}])


def test_kinds_of_scalars_stay_what_they_are() -> None:
    given = [True, False, 1, 0, 1.0, 0.5, "1", "true", "", 2**53]
    kept = job(parameters={"i": given}).parameters
    assert isinstance(kept, dict)
    assert [(type(value), value) for value in kept["i"]] == [(type(value), value) for value in given]


# --- what goes together ----------------------------------------------------------------------------------------


def test_tasks_or_parameters() -> None:
    assert "either tasks or parameters" in complaint(tasks=[{}], parameters={"i": [1]})


def test_a_command_for_every_task() -> None:
    missing = "a command is missing: give one to the job, or one to every task"
    assert missing in complaint(command=None)
    assert missing in complaint(command=None, parameters={"i": [1]})
    assert missing in complaint(command=None, tasks=[{"command": ["x"]}, {}])
    assert job(command=None, tasks=[{"command": ["x"]}]).task_count == 1


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 1),
        ({"parameters": {"a": [1, 2], "b": {"range": [1, 3]}}}, 6),
        ({"parameters": {"rows": [{"a": 1}, {"b": 2}]}}, 2),
        ({"parameters": {"rows": [1, 2, 3]}}, 3),
        ({"parameters": {"file": f"sha256:{'0' * 64}", "count": 7}}, 7),
        ({"parameters": {"file": f"sha256:{'0' * 64}"}}, 0),  # until its lines are counted
        ({"parameters": {"file": ["a", "b"], "count": [1, 2, 3]}}, 6),
        ({"tasks": [{}, {}]}, 2),
    ],
)
def test_task_count(given: dict[str, Any], count: int) -> None:
    assert job(**given).task_count == count


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({}, None),
        ({"size": 3}, 3.0),
        ({"tasks": [{"size": 1}, {"size": 2.5}]}, 3.5),
        ({"tasks": [{"size": 1}, {}]}, None),
        ({"tasks": [{"size": 1}, {}], "size": 9}, 9.0),
        ({"parameters": {"i": [1, 2]}}, None),
    ],
)
def test_known_size(given: dict[str, Any], size: float | None) -> None:
    assert job(**given).known_size == size


# --- as written ------------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
)
names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,5}\Z")
arguments = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
written = st.fixed_dictionaries(
    {"command": st.lists(arguments, min_size=1, max_size=3)},
    optional={
        "parameters": st.one_of(
            st.dictionaries(names, st.lists(scalars, min_size=1, max_size=3), min_size=1, max_size=3),
            st.builds(lambda rows: {"rows": rows}, st.lists(st.dictionaries(names, scalars), min_size=1, max_size=3)),
            st.builds(lambda count: {"file": f"sha256:{'0' * 64}", "count": count}, st.integers(1, 9)),
            st.builds(lambda last: {"i": {"range": [1, last]}}, st.integers(1, 9)),
        ),
        "environment": st.dictionaries(names, arguments, max_size=2),
        "size": st.floats(0.1, 1e15),
        "max_replicas": st.one_of(st.integers(1, 9), st.just("unlimited")),
        "requires": st.fixed_dictionaries({}, optional={"os": st.just("linux"), "slots": st.integers(1, 9)}),
    },
)


@settings(PATIENT, max_examples=tried(60))
@given(written)
def test_a_job_is_kept_as_it_was_written(document: dict[str, Any]) -> None:
    spec = job(**document)
    again = JobSpec.model_validate_json(json.dumps(spec.to_json()))
    assert again == spec
    assert set(spec.to_json()) <= set(document)


def test_a_spec_cannot_be_changed() -> None:
    spec = JobSpec(command=["x"], tasks=[TaskSpec()])
    with pytest.raises(ValidationError, match="frozen"):
        spec.name = "other"  # type: ignore[misc]
